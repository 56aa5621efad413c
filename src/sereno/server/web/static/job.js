// <sereno-job src="https://…/api/v1/jobs/7/stream" token="srj_…">: the state and progress of one job, as it runs.
// It needs no style sheet, no cookie and no exception in a strict Content-Security-Policy. docs/recipes/live-progress.md shows how.
(() => {
  const WORDS = {
    en: { name: "Progress", scheduled: "Scheduled", ready: "Waiting", running: "Running", succeeded: "Done", dead: "Failed", cancelled: "Cancelled", gone: "Ended", lost: "Reconnecting…" },
    es: { name: "Progreso", scheduled: "Programado", ready: "En espera", running: "En curso", succeeded: "Terminado", dead: "Ha fallado", cancelled: "Cancelado", gone: "Terminado", lost: "Reconectando…" },
    pt: { name: "Progresso", scheduled: "Agendado", ready: "À espera", running: "Em curso", succeeded: "Concluído", dead: "Falhou", cancelled: "Cancelado", gone: "Terminado", lost: "A religar…" },
  };
  // The server sends a line every 15 s; after this silence the connection counts as lost.
  const SILENCE = 45_000;
  const SHORTEST = 1000, LONGEST = 60_000;
  const FINAL = new Set(["succeeded", "dead", "cancelled"]);

  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
:host{display:block;font-size:15px;line-height:1.4;
--i:var(--sereno-ink,inherit);--l:var(--sereno-line,light-dark(#d5dae4,#333c52));--q:var(--sereno-quiet,light-dark(#566074,#a5afc3));
--a:var(--sereno-accent,light-dark(#1f4fa3,#9cc0ff));--e:var(--sereno-error,light-dark(#a3231f,#ff9d96))}
@supports not (color:light-dark(red,red)){:host{--l:var(--sereno-line,#d5dae4);--q:var(--sereno-quiet,#566074);--a:var(--sereno-accent,#1f4fa3);--e:var(--sereno-error,#a3231f)}}
:host([theme=light]){color-scheme:light}:host([theme=dark]){color-scheme:dark}
:host([hidden]),[hidden]{display:none!important}
.top{display:flex;gap:.6em;align-items:baseline;color:var(--i)} .state{font-weight:600}
.note{color:var(--q);overflow-wrap:anywhere}
.bar{height:8px;margin-block:.3em;border-radius:4px;overflow:hidden;background:var(--l)}
.fill{height:100%;width:0;background:var(--a);transition:width .3s}
.bar:not([aria-valuenow])>.fill{width:30%;animation:slide 1.5s infinite ease-in-out}
:host([state=dead]) .fill,:host([state=cancelled]) .fill{background:var(--e)}
:host([state=dead]) .state{color:var(--e)}
@keyframes slide{from{translate:-100%}to{translate:340%}}
@media (prefers-reduced-motion:reduce){.fill{transition:none;animation:none!important}}
.status{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}`);

  // Texts are inserted as text nodes: nothing from a job is ever parsed as markup.
  function make(tag, attributes = {}, ...inside) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  }

  const pause = (wait, signal) => new Promise((done) => {
    const timer = setTimeout(done, wait);
    signal.addEventListener("abort", () => done(clearTimeout(timer)), { once: true });
  });

  class Job extends HTMLElement {
    static observedAttributes = ["src", "token", "lang"];
    #get; #token; #stream; #last; #view = {};
    #state = make("span", { class: "state", part: "state" });
    #note = make("span", { class: "note", part: "note", dir: "auto" });
    #fill = make("div", { class: "fill", part: "fill" });
    #bar = make("div", { class: "bar", part: "bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" }, this.#fill);
    #status = make("div", { class: "status", role: "status", "aria-live": "polite" });

    constructor() {
      super();
      const root = this.attachShadow({ mode: "open" });
      root.adoptedStyleSheets = [sheet];
      root.append(make("slot", { name: "before" }), make("div", { class: "top" }, this.#state, this.#note), this.#bar, this.#status, make("slot"));
    }

    // Called for a token when there is none, or when it has expired.
    get getToken() { return this.#get; }
    set getToken(get) {
      this.#get = get;
      if (!this.#stream) this.#listen();
    }

    connectedCallback() {
      // Set before this script was loaded.
      if (Object.hasOwn(this, "getToken")) {
        this.#get = this.getToken;
        delete this.getToken;
      }
      this.#draw();
      this.#listen();
    }

    disconnectedCallback() { this.#stream = void this.#stream?.abort(); }

    attributeChangedCallback(name, before, now) {
      if (before === now || !this.isConnected) return;
      if (name === "lang") return this.#draw();
      // Another job, perhaps of another user: forget all about the previous one.
      if (name === "src") [this.#view, this.#last] = [{}, undefined];
      this.#token = undefined;
      this.#draw();
      this.#listen();
    }

    get #language() {
      const code = (this.lang || this.parentElement?.closest("[lang]")?.lang || navigator.language).slice(0, 2).toLowerCase();
      return code in WORDS ? code : "en";
    }

    #draw() {
      const { state, fraction, note } = this.#view;
      const words = WORDS[this.#language];
      for (const each of [this.#state, this.#bar, this.#status]) each.lang = this.#language;
      this.toggleAttribute("state", Boolean(state));
      if (state) this.setAttribute("state", state);
      this.#state.textContent = words[state] ?? "";
      this.#note.textContent = note ?? "";
      const percent = state === "succeeded" ? 100 : Number.isFinite(fraction) ? Math.round(fraction * 100) : state === "running" ? null : 0;
      this.#bar.setAttribute("aria-label", words.name);
      this.#bar.toggleAttribute("aria-valuenow", percent !== null);
      if (percent !== null) this.#bar.setAttribute("aria-valuenow", percent);
      this.#bar.setAttribute("aria-valuetext", [words[state], note].filter(Boolean).join(": "));
      this.#fill.style.width = percent === null ? "" : `${percent}%`;
      // Announced once for each state, and not with every percent.
      if (this.#status.textContent !== this.#state.textContent) this.#status.textContent = this.#state.textContent;
    }

    #tell(name, detail) { this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true })); }

    get #address() {
      const src = this.getAttribute("src");
      const url = src && URL.canParse(src, document.baseURI) ? new URL(src, document.baseURI) : null;
      return url && /^https?:$/.test(url.protocol) ? url.href : null;
    }

    // Reads the stream until the job has ended, and reconnects after the last chunk when it is interrupted.
    #listen = async () => {
      this.#stream = void this.#stream?.abort();
      if (!this.isConnected || !this.#address || !(this.#get || this.getAttribute("token"))) return;
      const { signal } = (this.#stream = new AbortController());
      for (let wait = SHORTEST, renewed = false; !signal.aborted; wait = Math.min(2 * wait, LONGEST)) {
        try {
          this.#token ??= this.getAttribute("token") || (await this.#get?.()) || undefined;
          if (signal.aborted) return;
          const response = await this.#ask("text/event-stream", signal);
          if (response.status === 401) {
            this.#token = this.#get && !renewed ? (await this.#get()) || undefined : undefined;
            if (signal.aborted) return;
            if (!this.#token) return this.#tell("sereno-signed-out");
            renewed = true;
            continue;
          }
          renewed = false;
          if (response.status === 404) return this.#hear("end", { state: "gone" });
          const later = Number(response.headers.get("Retry-After")) * 1000;
          if (later) wait = Math.min(Math.max(wait, later), LONGEST);
          // No free stream: poll instead.
          if (!response.ok) {
            if (this.#poll(await (await this.#ask("application/json", signal)).json())) return;
          } else if (await this.#read(response.body, signal)) return;
          else if (this.#view.state) wait = SHORTEST;
        } catch {
          if (!signal.aborted) this.#status.textContent = WORDS[this.#language].lost;
        }
        await pause(wait * (0.5 + Math.random()), signal);
      }
    };

    #ask(accept, signal) {
      const headers = { Accept: accept, Authorization: `Bearer ${this.#token}`, ...(this.#last && { "Last-Event-ID": this.#last }) };
      return fetch(this.#address, { headers, signal, credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" });
    }

    // Returns whether the job has ended.
    async #read(body, signal) {
      const reader = body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", event = {}; ; ) {
        const watchdog = setTimeout(() => reader.cancel(), SILENCE);
        const { value, done } = await reader.read().catch(() => ({ done: true })).finally(() => clearTimeout(watchdog));
        if (done || signal.aborted) return false;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines) {
          const [, name, text] = /^(event|id|data): (.*)$/s.exec(line) ?? [];
          if (name) event[name] = text;
          else if (!line && event.event) {
            if (event.id) this.#last = event.id;
            this.#hear(event.event, JSON.parse(event.data));
            if (event.event === "end") return true;
            event = {};
          }
        }
      }
    }

    #poll({ state, attempt, fraction, note }) {
      if (state !== this.#view.state || attempt !== this.#view.attempt) this.#hear("state", { state, attempt });
      if (Number.isFinite(fraction)) this.#hear("progress", { fraction, note });
      if (FINAL.has(state)) this.#hear("end", { state, attempt });
      return FINAL.has(state);
    }

    #hear(name, data) {
      if (name === "state" && data.attempt !== this.#view.attempt) this.#view = {};
      if (name === "chunk") return this.#tell("sereno-job-chunk", data);
      this.#view = { ...this.#view, ...data };
      this.#draw();
      this.#tell(`sereno-job-${name}`, data);
    }
  }

  if (!customElements.get("sereno-job")) customElements.define("sereno-job", Job);
})();
