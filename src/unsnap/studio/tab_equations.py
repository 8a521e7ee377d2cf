"""The tab Equations: demonstrations of the cookbook that follow their sliders."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import gradio as gr

from unsnap.studio import cards, equations
from unsnap.studio.watching import FREE


def build() -> None:
    """Four demonstrations, each with its sliders beside its picture."""
    _demonstration(
        "ADMM: the penalty ρ",
        "v ← D(x + w), w ← w + x − v with x ← argmin ½‖y − Φx‖² + ρ/2‖x − (v − w)‖². All ρ lead to the same video; "
        "a small ρ trusts the snapshot, a large one the denoiser, and either extreme is slow.",
        [gr.Slider(-3, 1, -1.5, step=0.1, label="log₁₀ ρ (in units of ‖Φ‖²)", render=False)],
        lambda exponent: (equations.penalty(10**exponent), ""),
    )
    _demonstration(
        "Anderson: damping δ and s points",
        "z ← (1 − δ) Σ αᵢ zᵢ + δ Σ αᵢ f(zᵢ), α = argmin ‖Aα‖ with Σα = 1. With δ = 1 and s = 1 this is the plain "
        "iteration, which leaves a map whose Jacobian has an eigenvalue below −1; try δ = 0.4, or s = 6.",
        [
            gr.Slider(0.1, 1.5, 1.0, step=0.05, label="δ", render=False, elem_id="delta"),
            gr.Slider(1, 10, 1, step=1, label="s", render=False, elem_id="points"),
        ],
        _mixing,
    )
    _demonstration(
        "How strong may a denoiser be?",
        "D takes away `amount` times what a small blur would; ε = ‖D − I‖ grows with it. The plain iteration contracts "
        "while the spectral radius of D(I − Φ⁺Φ) is below 1.",
        [gr.Slider(0, 3, 0.5, step=0.05, label="amount", render=False)],
        _strength,
    )
    _demonstration(
        "Contraction: predicted and measured",
        "With D = c · blur the iteration is linear, and its residual falls by the spectral radius of D(I − Φ⁺Φ) in "
        "every step, once faster parts have died away.",
        [gr.Slider(0.3, 0.99, 0.9, step=0.01, label="c", render=False)],
        _rate,
    )


def _mixing(delta: float, points: float) -> tuple[Any, str]:
    figure, facts = equations.mixing(delta, int(points))
    word = "converges" if facts["converged"] else "does not converge"
    return figure, f"The page's example {word} within {facts['evaluations']} evaluations."


def _strength(amount: float) -> tuple[Any, str]:
    figure, facts = equations.strength(amount)
    word = "contracts" if facts["radius"] < 1 else "diverges"
    return figure, f"ε = {facts['epsilon']:.2f}; spectral radius {facts['radius']:.3f}: the plain iteration {word}."


def _rate(factor: float) -> tuple[Any, str]:
    figure, facts = equations.rate(factor)
    return figure, f"Predicted {facts['predicted']:.4f} per step, measured {facts['measured']:.4f}."


def _demonstration(title: str, words: str, sliders: list[Any], draw: Callable[..., tuple[Any, str]]) -> None:
    def drawn(*values: float) -> tuple[Any, str]:
        usable = [
            value if math.isfinite(value) else slider.value for value, slider in zip(values, sliders, strict=True)
        ]
        held = [min(max(v, slider.minimum), slider.maximum) for v, slider in zip(usable, sliders, strict=True)]
        figure, said = draw(*held)
        return figure, cards.note(said) if said else ""

    with gr.Accordion(title, open=False) as part, gr.Row(equal_height=False):
        with gr.Column(scale=2, min_width=280):
            gr.HTML(cards.note(words))
            for slider in sliders:
                slider.render()
            said = gr.HTML(elem_classes="said")
        with gr.Column(scale=3, min_width=320):
            picture = gr.Plot(show_label=False, container=False)
    # `change`, which arrow keys cause too; always_last: while one picture is drawn, only the newest wish waits.
    gr.on(
        [part.expand, *(slider.change for slider in sliders)],
        drawn,
        sliders,
        [picture, said],
        **FREE | {"show_progress": "minimal", "trigger_mode": "always_last"},
    )
