"""unsnap certify: will it converge, and what says so?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from unsnap import zoo
from unsnap.algorithms.iterate import Callback
from unsnap.bench.pictures import convergence_plot
from unsnap.cli import common
from unsnap.cli.common import Reading, err, named, out, print_json, read_checked, remark
from unsnap.errors import InputError
from unsnap.fields import finite
from unsnap.fixed_point import FixedPoint, anderson, picard
from unsnap.fixed_point.rates import describe
from unsnap.fixed_point.solver import Solver
from unsnap.io import claim_output
from unsnap.masks import bernoulli
from unsnap.models import Equilibrium
from unsnap.models.stability import Certificate, certify
from unsnap.operators import CodedOperator, Snapshot
from unsnap.simulate import render

_SOLVERS: dict[str, Solver] = {
    "Picard": picard(),
    "Anderson": anderson(),
    "safeguarded Anderson": anderson(safeguard=0.9),
}


def command(
    model: Annotated[str, typer.Argument(help="Shipped model, or model file (.safetensors).", show_default=False)],
    scene: Annotated[Path | None, typer.Argument(help="Scene to measure at; none: the built-in scene.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Picture (.png) of the residual per step of three solvers.")
    ] = None,
    crop: Annotated[int, typer.Option(min=16, max=512, help="Side of the central square that is measured.")] = 40,
    iterations: Annotated[
        int, typer.Option(min=1, max=1000, help="Steps of the three solvers, and of the estimates.")
    ] = 20,
    force: common.Force = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """State what is proven about MODEL's convergence with its solver, and measure the rest at the equilibrium of SCENE.

    A certificate rests on the network's construction and the solver's rules and holds for every snapshot and mask; the
    Lipschitz constant and spectral radius printed beside it are estimates at one point. Exit code 3 if the model does
    not reach its tolerance.

    Examples:

      unsnap certify de-agap-certified

      unsnap certify deqsci-cnn.safetensors

      unsnap certify model.safetensors capture.mat -o convergence.png --json
    """
    if output is not None:
        claim_output(output, (".png",), inputs=(model, scene), force=force)
    loaded = zoo.equilibrium(model)
    y, phi = _measured(scene, crop, quiet)
    with _progress(quiet) as stage:
        try:
            with torch.no_grad():
                solution = loaded(y, phi, callback=stage("solving", loaded.max_iter))
        except ValueError as error:
            raise InputError(f"{model} cannot be solved here: {error}") from error
        stage("measuring at the equilibrium", None)
        certificate = certify(loaded, y, phi, solution=solution, iterations=iterations)
        if output is not None:
            stage("comparing solvers", None)
            convergence_plot(_histories(loaded, y, phi, iterations), output, overwrite=force)
    if output is not None:
        remark(f"Wrote {output}", quiet)
    facts = _facts(model, loaded, certificate, solution)
    if json:
        print_json(facts)
    else:
        _show(certificate, facts)
    if not facts["converged"]:
        reached = f"did not reach its tolerance {loaded.tol:.1e} in {solution.evaluations} evaluations"
        remark(f"{model} {reached}: what it returns is no equilibrium", quiet)
        raise typer.Exit(common.NOT_CONVERGED)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[str, int | None], Callback | None]]:
    """A bar; yields stage(what, steps or None), which returns a callback that moves it."""
    if quiet or not err.is_terminal:
        yield lambda what, steps: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[residual]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task("", residual="")

        def stage(what: str, steps: int | None) -> Callback:
            bar.reset(task, description=what, total=steps, residual="")
            return lambda k, x, residual: bar.update(
                task, completed=max(k, 0), residual=f"residual {float(residual.max()):.1e}"
            )

        yield stage


def _facts(name: str, model: Equilibrium, certificate: Certificate, solution: FixedPoint) -> dict[str, Any]:
    """The contract for scripts; what is not finite is None, as JSON has no word for it."""
    facts: dict[str, Any] = {
        "model": name,
        "certified": certificate.certified,
        "map_certified": certificate.map_certified,
        "descends": certificate.descends,
        "kind": certificate.kind,
        "bound": certificate.bound,
        "solver": describe(certificate.solver),
        "within": certificate.evaluations(model.tol),
        "rounding": certificate.rounding,
        "float32_range": certificate.range(model.tol),
        "float32_within": certificate.within(model.tol),
        "local_lipschitz": certificate.local_lipschitz,
        "spectral_radius": certificate.spectral_radius,
        "residual": float(solution.final.max()),
        "converged": bool(solution.converged.all()),
        "evaluations": solution.evaluations,
        "statement": certificate.statement,
        "evidence": certificate.evidence,
    }
    facts = finite(facts)
    return facts


def _measured(scene: Path | None, crop: int, quiet: bool) -> tuple[Tensor, CodedOperator]:
    """The middle of the first snapshot: the estimates need many products with the Jacobian."""
    if scene is None:
        masks = bernoulli(8, crop, crop, generator=torch.Generator().manual_seed(0))
        phi = Snapshot(masks)
        return phi.A(render(8, crop, crop, seed=0))[None], phi
    loaded = read_checked(scene, Reading(snapshots="1"), quiet)
    height, width = loaded.operator.video[-2:]
    middle = loaded.window(crop, max(height - crop, 0) // 2, max(width - crop, 0) // 2)
    return middle.measurement, middle.operator


def _histories(model: Equilibrium, y: Tensor, phi: CodedOperator, iterations: int) -> dict[str, Tensor]:
    histories = {}
    for name, solver in _SOLVERS.items():
        twin = Equilibrium(model.iteration, model.network, model.sigma, solver=solver, start=model.start)
        with torch.no_grad():
            histories[name] = twin(y, phi, tol=0.0, max_iter=iterations).residual
    return histories


def _show(certificate: Certificate, facts: dict[str, Any]) -> None:
    style = "green" if certificate.certified else "yellow"
    out.print(f"[bold]{named(facts['model'])}[/]: [{style}]{certificate.statement}[/]", highlight=False)
    if re.search(r"\(\d+\)", certificate.statement):
        out.print("[dim]Numbers in brackets are those of docs/cookbook/convergence.md[/]", highlight=False)
    for row in certificate.evidence.get("layers", []):
        norm = f"squared norm {row['squared_norm']:.7f}, row sum {row['row_sum']:.7f}"
        out.print(f"  {row['layer']}: {norm}, bound {row['bound']:.4g}", highlight=False)
    place = "At this equilibrium" if facts["converged"] else "At the best point found"
    residual, local, radius = (
        "not finite" if v is None else f"{v:.3g}"
        for v in (facts["residual"], facts["local_lipschitz"], facts["spectral_radius"])
    )
    out.print(
        f"{place} (residual {residual} after {facts['evaluations']} evaluations): "
        f"Lipschitz constant {local}, spectral radius {radius} (estimates)",
        highlight=False,
    )
