// <unsnap-film>: a film with play, frame, wipe between two layers. Frames of a layer lie in one picture, row by row.
// All of it is in a shadow tree: Gradio patches what it sees of an element when a new value comes.
const STYLE = `
.film-stage canvas { width: 100%; image-rendering: pixelated; border-radius: 6px; background: #111; display: block; }
.film-row { display: flex; flex-wrap: wrap; gap: 0.4rem 0.9rem; align-items: end; margin-top: 0.5rem; }
.film-row label { display: flex; flex-direction: column; font-size: 0.85rem; color: var(--studio-quiet, #566072); }
.film-row label.grow { flex: 1 1 140px; } .film-row input[type="range"] { width: 100%; accent-color: #0072b2; height: 1.6rem; }
.film-row select { font: inherit; padding: 0.3rem; border-radius: 6px; max-width: 15rem; color: var(--body-text-color);
  background: var(--background-fill-primary); border: 1px solid var(--border-color-primary); }
.film-row output { font-variant-numeric: tabular-nums; }
.film-row button { min-width: 5rem; }
.film-row button { padding: 0.35rem 0.8rem; border-radius: 6px; border: 1px solid #0072b2; background: transparent;
  color: #0072b2; cursor: pointer; font: inherit; font-size: 0.9rem; }
:focus-visible { outline: 3px solid #e69f00; outline-offset: 2px; }
`;
class UnsnapFilm extends HTMLElement {
  static observedAttributes = ["data-film"];
  attributeChangedCallback() {
    this.stop();
    this.spec = JSON.parse(this.dataset.film);
    if (!this.shadowRoot) {
      const root = this.attachShadow({ mode: "open" });
      root.addEventListener("input", (event) => this.changed(event.target));
      root.addEventListener("change", (event) => this.changed(event.target));
      root.addEventListener("click", (event) => { if (event.target.name === "play") this.play(); });
    }
    const root = this.shadowRoot;
    const names = Object.keys(this.spec.layers);
    const before = window.unsnapFilm || {};
    const same = before.newest === this.spec.newest; // a new result is shown, whatever was before
    const keep = (name, otherwise) => (same && names.includes(name) ? name : otherwise);
    this.state = {
      left: keep(before.left, this.spec.left),
      right: keep(before.right, this.spec.right),
      frame: Math.min(before.frame || 0, this.spec.frames - 1),
      wipe: before.wipe ?? 100,
      newest: this.spec.newest,
    };
    const options = (chosen) =>
      names.map((n) => `<option${n === chosen ? " selected" : ""}></option>`).join("");
    root.innerHTML = `<style>${STYLE}</style>
      <div class="film-stage"><canvas width="${this.spec.width * this.scale()}" height="${this.spec.height * this.scale()}" role="img"
        aria-label="Film of ${this.spec.frames} frames"></canvas></div>
      <div class="film-row"><button type="button" name="play" aria-pressed="false">Play</button>
        <label class="grow">Frame <output></output><input type="range" name="frame" min="0"
          max="${this.spec.frames - 1}" step="1" value="${this.state.frame}"></label></div>
      <div class="film-row"><label>Left<select name="left">${options(this.state.left)}</select></label>
        <label class="grow">Wipe<input type="range" name="wipe" min="0" max="100" value="${this.state.wipe}"></label>
        <label>Right<select name="right">${options(this.state.right)}</select></label></div>`;
    for (const select of root.querySelectorAll("select"))
      [...select.options].forEach((option, k) => { option.value = option.textContent = names[k]; });
    this.images = {};
    for (const side of ["left", "right"]) root.querySelector(`[name=${side}]`).value = this.state[side];
    this.draw();
  }
  scale() { return Math.max(1, Math.round(512 / this.spec.width)); } // small pictures are drawn larger: the line stays thin
  disconnectedCallback() { this.stop(); }
  stop() { clearInterval(this.timer); this.timer = null; }
  changed(input) {
    if (!input.name) return;
    this.state[input.name] = input.type === "range" ? Number(input.value) : input.value;
    this.draw();
  }
  play() {
    const root = this.shadowRoot, button = root.querySelector("[name=play]");
    if (this.timer) this.stop();
    else this.timer = setInterval(() => {
      this.state.frame = (this.state.frame + 1) % this.spec.frames;
      root.querySelector("[name=frame]").value = this.state.frame;
      this.draw();
    }, 1000 / this.spec.fps);
    button.textContent = this.timer ? "Pause" : "Play";
    button.setAttribute("aria-pressed", String(Boolean(this.timer)));
  }
  image(name) {
    if (!this.images[name]) {
      const image = new Image();
      image.onload = () => this.draw();
      image.src = this.spec.layers[name];
      this.images[name] = image;
    }
    return this.images[name];
  }
  draw() {
    const root = this.shadowRoot;
    window.unsnapFilm = { ...this.state };
    const { width, height, columns } = this.spec, { frame, wipe } = this.state;
    const context = root.querySelector("canvas").getContext("2d");
    const cut = Math.round((width * wipe) / 100), x = (frame % columns) * width, y = Math.floor(frame / columns) * height;
    const s = this.scale();
    context.imageSmoothingEnabled = false;
    const half = (name, from, to) => {
      const image = this.image(name);
      if (to > from && image.complete && image.naturalWidth)
        context.drawImage(image, x + from, y, to - from, height, s * from, 0, s * (to - from), s * height);
    };
    half(this.state.left, 0, cut);
    half(this.state.right, cut, width);
    if (cut > 0 && cut < width) { context.fillStyle = "#ffb000"; context.fillRect(s * cut - 1, 0, 2, s * height); }
    root.querySelector("output").textContent = `${frame + 1} of ${this.spec.frames}`;
  }
}
customElements.define("unsnap-film", UnsnapFilm);
