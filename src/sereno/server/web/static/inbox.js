// <sereno-inbox server="https://…" token="sri_…">: a bell with the unread count, and the messages of the inbox.
// It needs no style sheet, no cookie and no exception in a strict Content-Security-Policy. docs/recipes/inbox.md shows how.
(() => {
  const WORDS = {
    en: { name: "Notifications", unread: "{} unread", isUnread: "Unread", none: "Nothing here yet.", all: "Mark all as read",
      read: "Mark as read", archive: "Archive", more: "Show older", close: "Close", fresh: "New notification, {} unread", lost: "That did not work. Try again in a moment." },
    es: { name: "Notificaciones", unread: "{} sin leer", isUnread: "Sin leer", none: "Todavía no hay nada.", all: "Marcar todo como leído",
      read: "Marcar como leído", archive: "Archivar", more: "Ver anteriores", close: "Cerrar", fresh: "Nueva notificación, {} sin leer", lost: "No ha funcionado. Prueba de nuevo en un momento." },
    pt: { name: "Notificações", unread: "{} por ler", isUnread: "Por ler", none: "Ainda não há nada.", all: "Marcar tudo como lido",
      read: "Marcar como lido", archive: "Arquivar", more: "Ver anteriores", close: "Fechar", fresh: "Nova notificação, {} por ler", lost: "Não funcionou. Tente de novo daqui a pouco." },
  };
  const UNITS = [["year", 31536e3], ["month", 2592e3], ["day", 86400], ["hour", 3600], ["minute", 60]];
  const PAGE = 20;
  // The server sends a line every 15 s; after this silence the connection counts as lost.
  const SILENCE = 45_000;
  const SHORTEST = 1000, LONGEST = 60_000;

  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
:host{display:inline-block;position:relative;
--i:var(--sereno-ink,light-dark(#1a2233,#e8ebf2));--p:var(--sereno-paper,light-dark(#fff,#151b2b));--l:var(--sereno-line,light-dark(#d5dae4,#333c52));
--q:var(--sereno-quiet,light-dark(#566074,#a5afc3));--a:var(--sereno-accent,light-dark(#1f4fa3,#9cc0ff));--b:var(--sereno-badge,light-dark(#9a4b00,#ffb454));--c:var(--sereno-badge-ink,light-dark(#fff,#1b1300))}
@supports not (color:light-dark(red,red)){:host{--i:var(--sereno-ink,#1a2233);--p:var(--sereno-paper,#fff);--l:var(--sereno-line,#d5dae4);
--q:var(--sereno-quiet,#566074);--a:var(--sereno-accent,#1f4fa3);--b:var(--sereno-badge,#9a4b00);--c:var(--sereno-badge-ink,#fff)}}
:host([theme=light]){color-scheme:light}:host([theme=dark]){color-scheme:dark}
:host([hidden]),[hidden]{display:none!important}
*{box-sizing:border-box}
button{font:inherit;color:inherit;background:none;border:0;padding:.4em;cursor:pointer;border-radius:6px}
button:focus-visible,a:focus-visible{outline:2px solid currentColor;outline-offset:1px}
.bell{position:relative;display:block;min-width:44px;min-height:44px;line-height:0}
.badge{position:absolute;top:2px;inset-inline-end:0;min-width:1.6em;padding:0 .4em;border-radius:1em;background:var(--b);color:var(--c);font:600 11px/1.6 system-ui,sans-serif}
.panel{position:absolute;z-index:var(--sereno-layer,1000);top:100%;inset-inline-end:0;width:min(24rem,100vw);max-height:min(32rem,80vh);display:flex;flex-direction:column;
background:var(--p);color:var(--i);border:1px solid var(--l);border-radius:10px;box-shadow:0 8px 30px #0003;font-size:15px;line-height:1.4;text-align:start;outline:0}
.start{inset-inline:0 auto}
.top,.end{display:flex;align-items:center;gap:.5em;padding:.4em .8em;border-bottom:1px solid var(--l)}
.top b{flex:1}
.end{border:0;flex-direction:column}
ul{list-style:none;margin:0;padding:0;overflow-y:auto}
li{position:relative;padding-block:.7em .4em;padding-inline:1.8em .8em;border-bottom:1px solid var(--l);overflow-wrap:anywhere}
.panel button:hover{text-decoration:underline}
.title{font:inherit;padding:0;text-align:start;color:inherit}
a.title{color:var(--a)}
.new .title{font-weight:650}
.dot{position:absolute;inset-inline-start:.7em;top:1.2em;width:8px;height:8px;border-radius:50%;background:var(--b)}
p{margin:.2em 0;white-space:pre-line}
.foot{display:flex;flex-wrap:wrap;align-items:center;gap:.2em;font-size:13px;color:var(--q)}
time{margin-inline-end:auto}
.status{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
@media (max-width:480px){.panel{position:fixed;inset:0;width:auto;max-height:none;border:0;border-radius:0}ul{flex:1}}`);

  // Texts are inserted as text nodes: nothing from a message is ever parsed as markup.
  function make(tag, attributes = {}, ...inside) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...inside);
    return made;
  }

  function bell() {
    const space = "http://www.w3.org/2000/svg";
    const [svg, path] = ["svg", "path"].map((tag) => document.createElementNS(space, tag));
    for (const [name, value] of Object.entries({ viewBox: "0 0 24 24", width: 24, height: 24, fill: "none", stroke: "currentColor",
      "stroke-width": 1.8, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" })) svg.setAttribute(name, value);
    path.setAttribute("d", "M6 10a6 6 0 0 1 12 0c0 5 2 6 2 7H4c0-1 2-2 2-7M10 20a2 2 0 0 0 4 0");
    svg.append(path);
    return svg;
  }

  // Links may lead to http(s) pages only; others, such as javascript:, are dropped.
  function page(address) {
    if (typeof address !== "string" || !address || address.length > 2000) return null;
    try {
      const url = new URL(address, document.baseURI);
      return /^https?:$/.test(url.protocol) ? url.href : null;
    } catch {
      return null;
    }
  }

  const pause = (wait, signal) => new Promise((done) => {
    const timer = setTimeout(done, wait);
    signal.addEventListener("abort", () => done(clearTimeout(timer)), { once: true });
  });

  class Inbox extends HTMLElement {
    static observedAttributes = ["server", "token", "lang"];
    #get; #token; #renewing; #stream; #timer; #unread = 0; #updates = 0; #newest; #next = null;
    #rows = new Map();
    #items = new Map();
    #life = new AbortController();
    #bell = make("button", { class: "bell", type: "button", "aria-haspopup": "dialog", "aria-expanded": "false" });
    #badge = make("span", { class: "badge", "aria-hidden": "true", hidden: "" });
    #panel = make("div", { class: "panel", role: "dialog", tabindex: "-1", hidden: "" });
    #heading = make("b");
    #all = make("button", { type: "button" });
    #close = make("button", { type: "button" }, "✕");
    #list = make("ul", { role: "list" });
    #more = make("button", { type: "button", hidden: "" });
    #note = make("span");
    #status = make("div", { class: "status", role: "status" });

    constructor() {
      super();
      const root = this.attachShadow({ mode: "open" });
      root.adoptedStyleSheets = [sheet];
      this.#bell.append(bell(), this.#badge);
      this.#panel.append(make("div", { class: "top" }, this.#heading, this.#all, this.#close), this.#list, make("div", { class: "end" }, this.#note, this.#more));
      root.append(this.#bell, this.#panel, this.#status);
      this.#bell.addEventListener("click", () => this.toggle());
      this.#close.addEventListener("click", () => this.toggle(false));
      // If the focused button is hidden, the focus moves to a sensible element.
      this.#all.addEventListener("click", () => this.#mark("read").then(() => this.#panel.focus()));
      this.#more.addEventListener("click", async () => {
        const last = this.#list.lastElementChild;
        await this.#try(() => this.#load(this.#next));
        last?.nextElementSibling?.querySelector(".title").focus();
      });
      root.addEventListener("keydown", (event) => this.#key(event));
    }

    // Called for a token when there is none, or when it has expired.
    get getToken() { return this.#get; }
    set getToken(get) {
      this.#get = get;
      if (!this.#stream) this.#listen();
    }

    get unread() { return this.#unread; }

    connectedCallback() {
      if (Object.hasOwn(this, "getToken")) {
        const given = this.getToken;
        delete this.getToken;
        this.#get = given;
      }
      document.addEventListener("visibilitychange", this.#listen);
      document.addEventListener("pointerdown", this.#outside);
      this.#dress();
      this.#listen();
    }

    disconnectedCallback() {
      document.removeEventListener("visibilitychange", this.#listen);
      document.removeEventListener("pointerdown", this.#outside);
      this.toggle(false);
      this.#stream?.abort();
    }

    attributeChangedCallback(name, before, now) {
      if (before === now) return;
      if (name === "lang") return this.isConnected && this.#dress();
      // The new token may be of another user: drop all messages and pending responses of the previous one.
      this.#life.abort();
      this.#life = new AbortController();
      this.#token = this.#renewing = this.#newest = undefined;
      this.#rows.clear();
      this.#next = null;
      if (!this.isConnected) return;
      this.#count(0);
      this.#draw();
      this.#listen();
      if (!this.#panel.hidden) this.#try(() => this.#load());
    }

    toggle(open = this.#panel.hidden) {
      if (open !== this.#panel.hidden) return;
      this.#panel.hidden = !open;
      this.#bell.setAttribute("aria-expanded", open);
      clearInterval(this.#timer);
      if (!open) return void (this.shadowRoot.activeElement && this.#bell.focus());
      const { left, right } = this.getBoundingClientRect();
      this.#panel.classList.toggle("start", right < this.#panel.offsetWidth && left < innerWidth / 2);
      this.#timer = setInterval(() => this.#draw(), 60_000);
      this.#panel.focus();
      this.#try(() => this.#load());
    }

    #outside = (event) => {
      if (!event.composedPath().includes(this)) this.toggle(false);
    };

    #key(event) {
      if (this.#panel.hidden) return;
      if (event.key === "Escape") {
        event.stopPropagation();
        this.toggle(false);
      }
      if (event.key !== "Tab") return;
      const stops = [...this.#panel.querySelectorAll("button,a")].filter((each) => each.getClientRects().length);
      const [from, to] = event.shiftKey ? [0, -1] : [-1, 0];
      const active = this.shadowRoot.activeElement;
      if (active !== stops.at(from) && active !== this.#bell && !(event.shiftKey && active === this.#panel)) return;
      event.preventDefault();
      stops.at(to).focus();
    }

    get #language() {
      const code = (this.lang || this.parentElement?.closest("[lang]")?.lang || navigator.language).slice(0, 2).toLowerCase();
      return code in WORDS ? code : "en";
    }

    #say(word, count) { return WORDS[this.#language][word].replace("{}", count); }

    #dress() {
      for (const each of [this.#bell, this.#panel, this.#status]) each.lang = this.#language;
      this.#heading.textContent = this.#say("name");
      this.#panel.setAttribute("aria-label", this.#say("name"));
      this.#all.textContent = this.#say("all");
      this.#more.textContent = this.#say("more");
      this.#close.setAttribute("aria-label", this.#say("close"));
      this.#items.clear();
      this.#count(this.#unread);
      this.#draw();
    }

    #count(unread) {
      const shown = unread > 99 ? "99+" : String(unread);
      this.#badge.textContent = shown;
      this.#badge.hidden = this.#all.hidden = !unread;
      this.#bell.setAttribute("aria-label", this.#say("name") + (unread ? `, ${this.#say("unread", shown)}` : ""));
      if (unread === this.#unread) return;
      this.#unread = unread;
      this.#tell("sereno-unread", { count: unread });
    }

    #tell(name, detail) {
      return this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true, cancelable: true }));
    }

    // Keeps a stream open while the page is visible, and reconnects when it ends.
    #listen = async () => {
      this.#stream?.abort();
      this.#stream = undefined;
      if (!this.isConnected || document.hidden || !this.#address || !(this.#get || this.getAttribute("token"))) return;
      const { signal } = (this.#stream = new AbortController());
      for (let wait = SHORTEST; !signal.aborted; wait = Math.min(2 * wait, LONGEST)) {
        try {
          const response = await this.#ask("/stream", { signal, accept: "text/event-stream" });
          const later = Number(response.headers.get("Retry-After")) * 1000;
          if (later) wait = Math.min(Math.max(wait, later), LONGEST);
          // No free stream: poll instead.
          if (!response.ok) this.#stands(await (await this.#ask("/stream", { signal })).json());
          else if (await this.#hear(response.body)) wait = SHORTEST;
        } catch {
          if (!this.#get && !this.#token && !signal.aborted) return (this.#stream = undefined);
        }
        await pause(wait * (0.5 + Math.random()), signal);
      }
    };

    async #hear(body) {
      const reader = body.pipeThrough(new TextDecoderStream()).getReader();
      for (let rest = "", heard = false; ; ) {
        const watchdog = setTimeout(() => reader.cancel(), SILENCE);
        const { value, done } = await reader.read().catch(() => ({ done: true })).finally(() => clearTimeout(watchdog));
        if (done) return heard;
        const lines = (rest + value).split("\n");
        rest = lines.pop();
        for (const line of lines.filter((each) => each.startsWith("data: "))) {
          heard = true;
          this.#stands(JSON.parse(line.slice(6)));
        }
      }
    }

    #stands({ unread, newest }) {
      if (!Number.isInteger(unread)) return;
      const isNew = this.#newest !== undefined && newest > this.#newest;
      this.#newest = newest ?? 0;
      this.#updates++;
      this.#count(unread);
      if (isNew) this.#status.textContent = this.#say("fresh", unread);
      if (!this.#panel.hidden) this.#try(() => this.#load());
    }

    get #address() {
      const server = this.getAttribute("server");
      return server === null ? null : page(server.replace(/\/*$/, "/"));
    }

    async #ask(path, { signal = this.#life.signal, accept = "application/json", body } = {}) {
      const life = this.#life.signal;
      for (let again = true; ; again = false) {
        this.#token ??= this.getAttribute("token") || undefined;
        const token = this.#token ?? (await this.#renew(life));
        const headers = { Accept: accept, Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) };
        const response = await fetch(`${this.#address}api/v1/inbox${path}`, { method: body ? "POST" : "GET", headers, signal,
          body: body && JSON.stringify(body), keepalive: Boolean(body), credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" });
        if (response.status !== 401) return response;
        if (life.aborted || !again) throw new Error("not let in");
        if (this.#token === token) await this.#renew(life);
      }
    }

    // One request at a time, however many callers.
    async #renew(life) {
      this.#renewing ??= (async () => this.#get?.())().catch(() => null);
      const renewing = this.#renewing;
      const token = await renewing;
      if (life.aborted) throw new Error("the token has changed");
      if (this.#renewing === renewing) {
        this.#renewing = undefined;
        this.#token = typeof token === "string" && token ? token : undefined;
        if (!this.#token) this.#tell("sereno-signed-out");
      }
      if (!this.#token) throw new Error("no token");
      return this.#token;
    }

    async #try(work) {
      const { signal } = this.#life;
      try {
        await work();
        this.#note.textContent = this.#rows.size ? "" : this.#say("none");
      } catch {
        if (!signal.aborted) this.#note.textContent = this.#say("lost");
      }
    }

    async #load(before) {
      const response = await this.#ask(`?limit=${PAGE}${before ? `&before=${before}` : ""}`);
      if (!response.ok) throw new Error(response.statusText);
      const { items, next } = await response.json();
      const ids = new Set(items.map(({ id }) => id));
      const last = next === null ? 0 : Math.min(...ids);
      // Could messages be missing between these and the ones already shown?
      const isApart = !before && !items.some(({ id }) => this.#rows.has(id));
      for (const id of this.#rows.keys()) if (!before && (isApart || (id >= last && !ids.has(id)))) this.#rows.delete(id);
      for (const row of items) this.#rows.set(row.id, row);
      if (before || isApart || next === null) this.#next = next;
      this.#draw();
      const unseen = items.filter((row) => !row.seen_at).map(({ id }) => id);
      if (unseen.length) await this.#ask("/mark", { body: { what: "seen", ids: unseen } });
    }

    #mark(what, id) {
      return this.#try(async () => {
        const ids = id === undefined ? null : [id];
        const updates = this.#updates;
        const response = await this.#ask("/mark", { body: ids ? { what, ids } : { what } });
        if (!response.ok) throw new Error(response.statusText);
        const now = new Date().toISOString();
        const rows = [...this.#rows.values()].filter((row) => (ids ? row.id === id : true) && !row.read_at);
        for (const row of rows) row.read_at = now;
        if (what === "archived") {
          const item = this.#items.get(id)?.item;
          const near = item?.nextElementSibling ?? item?.previousElementSibling;
          this.#rows.delete(id);
          (near?.querySelector(".title") ?? this.#panel).focus();
        }
        // Events of the stream take precedence: they may include this change already, or will soon.
        if (updates === this.#updates) this.#count(ids ? Math.max(0, this.#unread - rows.length) : 0);
        this.#draw();
        this.#tell("sereno-read", { ids });
      });
    }

    #draw() {
      this.#more.hidden = this.#next === null;
      let place = this.#list.firstElementChild;
      for (const id of [...this.#rows.keys()].sort((one, other) => other - one)) {
        const item = this.#item(this.#rows.get(id));
        if (item === place) place = place.nextElementSibling;
        else this.#list.insertBefore(item, place);
      }
      while (place) {
        const gone = place;
        place = place.nextElementSibling;
        gone.remove();
      }
      for (const id of this.#items.keys()) if (!this.#rows.has(id)) this.#items.delete(id);
    }

    #item(row) {
      let known = this.#items.get(row.id);
      if (!known) this.#items.set(row.id, (known = this.#write(row)));
      known.item.classList.toggle("new", !row.read_at);
      known.dot.hidden = known.read.hidden = Boolean(row.read_at);
      const ago = (new Date(row.created_at) - Date.now()) / 1000;
      const [unit, length] = UNITS.find(([, each]) => Math.abs(ago) >= each) ?? ["second", Infinity];
      known.time.textContent = new Intl.RelativeTimeFormat(this.#language, { numeric: "auto" }).format(Math.round(ago / length), unit);
      return known.item;
    }

    #write(row) {
      const url = page(row.data?.[this.getAttribute("link") ?? "url"]);
      const dot = make("span", { class: "dot", role: "img", "aria-label": this.#say("isUnread") });
      const name = row.title || row.event;
      const title = url ? make("a", { class: "title", dir: "auto", href: url, rel: "noopener noreferrer" }, name)
        : make("button", { class: "title", dir: "auto", type: "button" }, name);
      const time = make("time", { datetime: row.created_at, title: new Date(row.created_at).toLocaleString(this.#language) });
      const [read, archive] = ["read", "archive"].map((word) =>
        make("button", { type: "button", "aria-label": `${this.#say(word)}: ${name}` }, this.#say(word)));
      title.addEventListener("click", (event) => {
        const { id, event: kind, data } = row;
        if (!this.#tell("sereno-open", { id, event: kind, title: row.title, data, url })) event.preventDefault();
        if (!this.#rows.get(id)?.read_at) this.#mark("read", id);
      });
      read.addEventListener("click", () => {
        title.focus();
        this.#mark("read", row.id);
      });
      archive.addEventListener("click", () => this.#mark("archived", row.id));
      const item = make("li", {}, dot, title, make("p", { dir: "auto" }, row.body), make("div", { class: "foot" }, time, read, archive));
      return { item, dot, read, time };
    }
  }

  if (!customElements.get("sereno-inbox")) customElements.define("sereno-inbox", Inbox);
})();
