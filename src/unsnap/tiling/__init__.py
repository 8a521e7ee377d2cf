"""Pictures of any size in bounded memory: cut into overlapping tiles, each reconstructed alone, blended without seams.

    plan = tiling.plan(scene.operator.video, method, memory=2 * 2**30)     # the same for the same arguments
    answers = tiling.survey(tiling.sample(scene), method)                  # once: what all tiles must agree on
    for tile in plan.tiles:                                                # in any order, in any process
        part = tiling.reconstruct(tiling.cut(scene, tile), method, answers)
        results[tile.index] = tiling.kept(part, tile)                      # (..., frames, rows, columns) to blend
    for frame, rows, picture in tiling.blended(plan, frames, load):        # load(tile, frame) -> picture, as kept
        ...                                                                # rows of the result, from the top

A tile's result depends on nothing but the scene, the tile, the method and the answers. Φ is per pixel (of a dispersed
spectrum per row or column), so the data step of a tile is exact; what a method finds out about a picture as a whole
(its noise, its brightness, when to stop: `operators.whole`) is found once, in a sample, and told to every tile.
"""

from unsnap.tiling.blend import blended, kept
from unsnap.tiling.cut import cut, sample
from unsnap.tiling.plan import Plan, Span, Tile, plan, reach
from unsnap.tiling.solve import Part, reconstruct, survey
from unsnap.tiling.source import Source, of_file, of_scene

__all__ = [
    "Part",
    "Plan",
    "Source",
    "Span",
    "Tile",
    "blended",
    "cut",
    "kept",
    "of_file",
    "of_scene",
    "plan",
    "reach",
    "reconstruct",
    "sample",
    "survey",
]
