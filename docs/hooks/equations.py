"""The map of equations: one row each, with its code, its test, its place in the cookbook and its picture.

`table()` is what docs/cookbook/index.md shows; tests/cookbook/test_equations.py checks that everything named exists.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple


class Equation(NamedTuple):
    number: str
    latex: str
    code: str
    """module:object"""
    test: str
    """FILE::FUNCTION below tests/."""
    page: str
    heading: str
    """Of the section that derives it; empty: the page itself."""
    picture: str
    """PAGE: TITLE of the figure in which it is seen at work."""


PAGE_TEST = "cookbook/test_pages.py::test_a_page_holds_for_two_settings"
STEPS, OPERATORS = "algorithms/test_steps.py::", "operators/test_operators.py::"
GRADIENTS, EQUILIBRIUM = "fixed_point/test_gradients.py::", "models/test_equilibrium.py::"
CERTIFIED = "networks/test_certified_network.py::"
A = "unsnap.algorithms."
FORWARD = "forward-model: A frame, its mask, their product, the snapshot, least squares"
PIXEL = "forward-model: One pixel and two frames"
RHO = "admm: Objective above its minimum for three penalties"
FIVE = "implicit: Error, cost and memory of the five gradients"
SERIES = "implicit: Neumann error by terms, normal and not"
PIPELINES = "equilibrium: The two pipelines: DE-GAP and DE-RNN"
LAGRANGIAN = "The augmented Lagrangian"
BY_STEPS = "From ∂x̂/∂θ to (18), step by step"

# One row, one line.
# fmt: off
# ruff: noqa: E501
SOURCE = [
    Equation("(1)", r"y = \sum_t m_t \odot x_t + e = \Phi x + e", "unsnap.operators:Snapshot.A", OPERATORS + "test_dense_matrix_agrees", "forward-model", "", FORWARD),
    Equation("(2)", r"\Phi^\top y = (m_t \odot y)_t", "unsnap.operators:Snapshot.A_adjoint", OPERATORS + "test_linear_and_adjoint", "forward-model", "", PIXEL),
    Equation("(3)", r"\Phi\Phi^\top = \mathrm{diag}(\sum_t m_t^2)", "unsnap.operators:Snapshot.gram", OPERATORS + "test_gram_holds_squares_not_sums", "forward-model", "The Gram matrix has the squares", "forward-model: Misfit after each data step, divided by Σm² and by Σm"),
    Equation("(4)", r"\Psi = \Phi^\top(\Phi\Phi^\top)^+\Phi = \Psi^\top = \Psi^2", "unsnap.operators:Snapshot.A_dagger", OPERATORS + "test_projection", "forward-model", "Projection, and pixels that measured nothing", PIXEL),
    Equation("", r"\min_x \frac12\|y - \Phi x\|^2 + R(x)", A + "pgd:pgd", "algorithms/test_minimisers.py::test_all_reach_the_same_objective", "gradient", "", "gradient: Objective above its minimum by algorithm"),
    Equation("(5)", r"x^{k+1} = x^k + \alpha\Phi^\top(y - \Phi x^k) - \alpha\nabla R(x^k)", A + "gd:gd_step", STEPS + "test_gradient_step", "gradient", "Gradient descent, for a differentiable R", "gradient: Frame 1 by gradient descent"),
    Equation("(6)", r"x^{k+1} = \mathrm{prox}_{\alpha R}(x^k + \alpha\Phi^\top(y - \Phi x^k))", A + "pgd:pgd_step", STEPS + "test_proximal_gradient_step", "gradient", "Proximal gradient, for an R with corners", "gradient: Objective above its minimum by algorithm"),
    Equation("", r"L_\rho = \frac12\|y - \Phi x\|^2 + R(v) + u^\top(x - v) + \frac\rho2\|x - v\|^2", A + "admm:admm_unscaled_step", PAGE_TEST, "admm", LAGRANGIAN, "slips: ADMM and the iteration as printed"),
    Equation("", r"u^\top(x - v) + \frac\rho2\|x - v\|^2 = \frac\rho2\|x - (v - \frac u\rho)\|^2 - \frac1{2\rho}\|u\|^2", A + "admm:admm_unscaled_step", PAGE_TEST, "admm", LAGRANGIAN, RHO),
    Equation("", r"u^\top(x - v) + \frac\rho2\|x - v\|^2 = \frac\rho2\|v - (x + \frac u\rho)\|^2 - \frac1{2\rho}\|u\|^2", A + "admm:admm_unscaled_step", PAGE_TEST, "admm", LAGRANGIAN, RHO),
    Equation("(7)", r"x\text{-, }v\text{-step},\; u^{k+1} = u^k + \rho(x^{k+1} - v^{k+1})", A + "admm:admm_unscaled_step", STEPS + "test_scaled_and_unscaled_admm_are_the_same", "admm", LAGRANGIAN, "slips: ADMM and the iteration as printed"),
    Equation("(8)", r"x \text{ from } v - w,\; v \text{ from } x + w,\; w \leftarrow w + x - v", A + "admm:admm_step", STEPS + "test_admm_step", "admm", LAGRANGIAN, RHO),
    Equation("(9)", r"x = z + \Phi^\top[(y - \Phi z)/(\rho + \sum_t m_t^2)]", "unsnap.operators:Snapshot.prox_l2", OPERATORS + "test_prox_is_stationary", "admm", "The x-step needs no inner solver", PIXEL),
    Equation("(10)", r"x \leftarrow v + \Phi^\top(\Phi\Phi^\top)^{-1}(y - \Phi v),\; v \leftarrow D(x)", A + "gap:gap_step", STEPS + "test_gap_step", "gap", "The first half is a projection", "gap: The cost that plain GAP brings down"),
    Equation("(11)", r"\bar y \leftarrow \bar y + (y - \Phi v)", A + "gap:accelerated_gap_step", STEPS + "test_accelerated_gap_is_admm_with_vanishing_rho", "gap", "Accelerated GAP is ADMM with ρ → 0", "gap: PSNR by iteration of plain and accelerated GAP"),
    Equation("(12)", r"\text{any denoiser } D_\sigma \text{ in place of prox}", A + "iterate:Denoiser", "algorithms/test_all.py::test_denoiser_may_be_anything_that_can_be_called", "plug-and-play", "", "plug-and-play: PSNR by iteration for three schedules"),
    Equation("(13)", r"\hat x = \mathrm{RNN}_\theta(\hat x, y, \Phi)", A + "recurrent:Recurrent", EQUILIBRIUM + "test_the_equilibrium_satisfies_its_equation", "equilibrium", "DE-RNN", PIPELINES),
    Equation("(14)", r"\hat x = D_\theta(\hat x + \Phi^\top(\Phi\Phi^\top)^{-1}(y - \Phi\hat x))", A + "gap:GAP", EQUILIBRIUM + "test_the_equilibrium_satisfies_its_equation", "equilibrium", "The maps", PIPELINES),
    Equation("(15)", r"\text{the same with the steps (5), (6), (8)}", A + "gd:GD", EQUILIBRIUM + "test_solvers_agree", "equilibrium", "Same equilibrium, different iterations", "equilibrium: Eigenvalues of J before and after training"),
    Equation("(16)", r"z^{k+1} = (1 - \delta)\sum_i\alpha_iz^{k-i} + \delta\sum_i\alpha_if(z^{k-i}),\; \alpha = \mathrm{argmin}_{1^\top\alpha = 1}\|A\alpha\|^2", "unsnap.fixed_point:anderson", "fixed_point/test_accelerators.py::test_differences_are_the_constrained_formula", "anderson", "Why it works, and its two points in one dimension", "anderson: Evaluations by damping and memory"),
    Equation("(17)", r"\ell = \frac12\|\hat x - x^*\|^2,\; \partial\ell/\partial\hat x = \hat x - x^*", "unsnap.fixed_point:fixed_point", GRADIENTS + "test_exact_modes_are_the_dense_solve", "implicit", "", FIVE),
    Equation("", r"\partial\hat x/\partial\theta = \partial f/\partial\theta + J\,\partial\hat x/\partial\theta", "unsnap.fixed_point:fixed_point", PAGE_TEST, "implicit", BY_STEPS, FIVE),
    Equation("", r"\partial\hat x/\partial\theta = (I - J)^{-1}\partial f/\partial\theta", "unsnap.fixed_point:fixed_point", PAGE_TEST, "implicit", BY_STEPS, FIVE),
    Equation("(18)", r"\partial\ell/\partial\theta = (\partial f/\partial\theta)^\top a,\; a = (I - J)^{-\top}(\hat x - x^*)", "unsnap.fixed_point:fixed_point", GRADIENTS + "test_exact_modes_are_the_dense_solve", "implicit", BY_STEPS, FIVE),
    Equation("(19)", r"a \leftarrow J^\top a + (\hat x - x^*)", "unsnap.fixed_point:implicit", GRADIENTS + "test_gradcheck", "implicit", BY_STEPS, FIVE),
    Equation("(20)", r"a = \sum_p (J^\top)^p(\hat x - x^*)", "unsnap.fixed_point:neumann", GRADIENTS + "test_neumann_is_its_series", "implicit", "Cutting the series short", SERIES),
    Equation("", r"\partial f/\partial x = \partial D(P(x))\,(I - \Psi)", "unsnap.models.stability:lipschitz", PAGE_TEST, "implicit", "Exercises", "equilibrium: Eigenvalues of J before and after training"),
    Equation("", r"\|\partial D\,(I - \Psi)\| \le 1 + \varepsilon", "unsnap.models.stability:lipschitz", PAGE_TEST, "convergence", "Why a bound on D − I is not enough", "convergence: ε against divergence"),
]

BEYOND = [
    Equation("(21)", r"D = (1 - \kappa)I + \kappa N,\; N \text{ 1-Lipschitz: averaged}", "unsnap.models.stability:certify", CERTIFIED + "test_clamp_contraction_and_average", "convergence", "What provably converges", "convergence: Residual of an averaged map and its bound"),
    Equation("(22)", r"\text{output in } [0, 1] \text{: a fixed point exists}", "unsnap.networks:Certified", CERTIFIED + "test_clamp_contraction_and_average", "convergence", "What provably converges", "convergence: Residual of a certified model on absurd snapshots"),
    Equation("(23)", r"\mathrm{Lip}(D) \le c < 1 \text{: one fixed point, rate } c", "unsnap.networks:Certified", "fixed_point/test_rates.py::test_picard_needs_exactly_what_is_proven", "convergence", "What provably converges", "convergence: Contraction rates predicted and measured"),
    Equation("(24)", r"z - 2K^\top T^{-1}\mathrm{relu}(Kz + b)", "unsnap.networks:Certified", CERTIFIED + "test_no_jacobian_exceeds_the_bound", "convergence", "What provably converges", "convergence: Residual of a certified model on absurd snapshots"),
    Equation("(25)", r"D = I - \tau\nabla g \text{: } g \text{ falls at every step}", "unsnap.networks:GradientStep", "networks/test_gradient_step.py::test_energy_falls_along_the_denoiser_and_along_projected_descent", "convergence", "What provably converges", "convergence: The energy falls at every step"),
    Equation("(26)", r"\|f(z^{k+1}) - z^{k+1}\| \le 0.9\,\|f(z) - z\|", "unsnap.fixed_point:anderson", "fixed_point/test_rates.py::test_no_adversary_makes_the_safeguard_exceed_what_is_proven", "anderson", "The safeguard", "anderson: Residual by evaluation for a map that expands"),
    Equation("(27)", r"\hat x = \sum_k r_k[\mu_k + \Sigma_k\Phi^\top(\Phi\Sigma_k\Phi^\top + s^2I)^{-1}(y - \Phi\mu_k)]", "unsnap.priors.gmm:posterior", "priors/test_gmm.py::test_posterior_is_the_dense_formula", "gmm", "", "gmm: Likelihood by iteration of EM"),
    Equation("(28)", r"\min \sum_i\|c_i\|_0 \text{ s.t. } \|z_i - Dc_i\|^2 \le (1.15\,\sigma)^2 d", "unsnap.priors:Dictionary", "priors/test_dictionary.py::test_residual_is_orthogonal_to_its_support", "dictionary", "", "dictionary: Error by renewal of the atoms"),
    Equation("(29)", r"y(p) = \sum_t m_t(p)(a_t + b_t^\top p) + e(p)", A + "noise:noise_map", "algorithms/test_noise.py::test_finds_the_noise_of_planes", "noise", "How noisy is it?", "noise: Frame 4 without and with knowledge of the noise"),
    Equation("(30)", r"\bar y \leftarrow y + (\bar y - y)/(1 + e/e_0) + (y - \Phi v)", A + "noisy_gap:noisy_gap_step", "algorithms/test_noisy_gap.py::test_step_against_dense_algebra", "noise", "What to do about it", "noise: PSNR by iteration on a noisy snapshot"),
    Equation("(31)", r"x_k = f(x_{k-1}; y, \Phi, D_{\theta_k}, \sigma_k)", "unsnap.models.unfolded:Unfolded", "models/test_unfolded.py::test_the_model_is_its_stages", "unfolded", "", "unfolded: Loss by step of training"),
    Equation("(32)", r"z \leftarrow \tfrac12(z + R_P R_D z)", "unsnap.algorithms:AcceleratedGAP", "models/test_certificates.py::test_splitting_never_parts_two_runs", "convergence", "What provably converges", "gap: Misfit by iteration of plain and accelerated GAP"),
]
# fmt: on


def table() -> str:
    """Both lists as Markdown, with links relative to cookbook/index.md."""
    head = "| | equation | code | test | page | picture |\n|---|---|---|---|---|---|\n"
    parts = [("The source's displayed equations, in its order", SOURCE), ("What is added here", BEYOND)]
    return "\n\n".join(f"### {title}\n\n{head}" + "\n".join(map(_row, rows)) for title, rows in parts)


def _row(row: Equation) -> str:
    section = f"[{row.page}]({row.page}.md{'#' + slug(row.heading) if row.heading else ''})"
    page, _, title = row.picture.partition(": ")
    short, test = row.code.removeprefix("unsnap.").replace(":", "."), row.test.partition("::")[2]
    equation = row.latex.replace(r"\|", r"\Vert ")  # a bar would end the cell
    return f"| {row.number} | ${equation}$ | `{short}` | `{test}` | {section} | [picture]({page}.md#{figure(title)}) |"


def slug(heading: str) -> str:
    """The anchor that Markdown gives a heading."""
    ascii_ = unicodedata.normalize("NFKD", heading).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_).strip().lower())


def figure(title: str) -> str:
    """The anchor of a picture."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
