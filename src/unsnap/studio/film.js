// <unsnap-film>: a film with play, frame, wipe between two layers. Frames of a layer lie in one picture, row by row.
class UnsnapFilm extends HTMLElement {
  connectedCallback() {
    if (this.spec) return;
    this.spec = JSON.parse(this.dataset.film);
    const names = Object.keys(this.spec.layers);
    const before = window.unsnapFilm || {};
    const keep = (name, otherwise) => (names.includes(name) ? name : otherwise);
    this.state = {
      left: keep(before.left, this.spec.left),
      right: keep(before.right, this.spec.right),
      frame: Math.min(before.frame || 0, this.spec.frames - 1),
      wipe: before.wipe ?? 100,
    };
    const options = (chosen) =>
      names.map((n) => `<option${n === chosen ? " selected" : ""}></option>`).join("");
    this.innerHTML = `
      <div class="film-stage"><canvas width="${this.spec.width}" height="${this.spec.height}" role="img"
        aria-label="Film of ${this.spec.frames} frames"></canvas></div>
      <div class="film-row"><button type="button" name="play" aria-pressed="false">Play</button>
        <label class="grow">Frame <output></output><input type="range" name="frame" min="0"
          max="${this.spec.frames - 1}" step="1" value="${this.state.frame}"></label></div>
      <div class="film-row"><label>Left<select name="left">${options(this.state.left)}</select></label>
        <label class="grow">Wipe<input type="range" name="wipe" min="0" max="100" value="${this.state.wipe}"></label>
        <label>Right<select name="right">${options(this.state.right)}</select></label></div>`;
    for (const select of this.querySelectorAll("select"))
      [...select.options].forEach((option, k) => { option.value = option.textContent = names[k]; });
    this.images = {};
    for (const side of ["left", "right"]) this.querySelector(`[name=${side}]`).value = this.state[side];
    this.addEventListener("input", (event) => this.changed(event.target));
    this.addEventListener("change", (event) => this.changed(event.target));
    this.querySelector("[name=play]").addEventListener("click", () => this.play());
    this.draw();
  }
  disconnectedCallback() { clearInterval(this.timer); }
  changed(input) {
    if (!input.name) return;
    this.state[input.name] = input.type === "range" ? Number(input.value) : input.value;
    this.draw();
  }
  play() {
    const button = this.querySelector("[name=play]");
    if (this.timer) { clearInterval(this.timer); this.timer = null; }
    else this.timer = setInterval(() => {
      this.state.frame = (this.state.frame + 1) % this.spec.frames;
      this.querySelector("[name=frame]").value = this.state.frame;
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
    window.unsnapFilm = { ...this.state };
    const { width, height, columns } = this.spec, { frame, wipe } = this.state;
    const context = this.querySelector("canvas").getContext("2d");
    const cut = Math.round((width * wipe) / 100), x = (frame % columns) * width, y = Math.floor(frame / columns) * height;
    const half = (name, from, to) => {
      const image = this.image(name);
      if (to > from && image.complete && image.naturalWidth)
        context.drawImage(image, x + from, y, to - from, height, from, 0, to - from, height);
    };
    half(this.state.left, 0, cut);
    half(this.state.right, cut, width);
    if (cut > 0 && cut < width) { context.fillStyle = "#ffb000"; context.fillRect(cut - 1, 0, 2, height); }
    this.querySelector("output").textContent = `${frame + 1} of ${this.spec.frames}`;
  }
}
customElements.define("unsnap-film", UnsnapFilm);
