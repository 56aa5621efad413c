// <sereno-preferences server="https://…" token="srp_…">: a recipient sees and changes their own preferences, as on the page of the
// preference centre. It needs no style sheet, no cookie and no exception in a strict Content-Security-Policy. docs/recipes/preference-centre.md shows how.
(() => {
  // The translations of the page; a test compares them.
  const WORDS = {
    "es": {
      "Your notifications": "Sus avisos", "Saved. It applies to all messages that are not sent yet.": "Guardado. Vale para todos los mensajes que aún no se han enviado.", "What you get": "Qué recibe",
      "There are no messages to choose from.": "No hay mensajes entre los que elegir.",
      "Turned off, nothing is sent that way, except what is always sent. Turned on again, choose below.": "Si lo desactiva, no se envía nada por esa vía, salvo lo que se envía siempre. Si lo activa de nuevo, elija abajo.",
      "Single kinds of message": "Tipos de mensaje por separado", "Other messages": "Otros mensajes", "All messages": "Todos los mensajes",
      "Collected for %(time)s and sent as one message": "Se reúnen durante %(time)s y se envían en un solo mensaje", "always sent": "se envía siempre", "some of them": "algunos de ellos",
      "only under a condition": "solo con una condición", "none": "ninguna", "Quiet hours": "Horas de silencio",
      "How often": "Con qué frecuencia", "at once": "al momento", "every 15 minutes": "cada 15 minutos", "once an hour": "una vez por hora", "once a day": "una vez al día",
      "once a week": "una vez por semana", "every %(time)s": "cada %(time)s", "as usual: %(times)s": "como de costumbre: %(times)s", "different times": "tiempos distintos",
      "Messages wait for the end of these hours, except what is always sent.": "Los mensajes esperan al final de estas horas, salvo lo que se envía siempre.",
      "The usual ones: %(hours)s": "Las habituales: %(hours)s", "Your own; none if you leave them empty": "Las suyas; ninguna si las deja vacías", "Add hours": "Añadir horas",
      "Hours %(number)s": "Horas %(number)s", "From": "Desde", "To": "Hasta", "Only on nights that begin on": "Solo en las noches que empiezan en",
      "Without a day, the hours are those of every day. Clear both times to remove them.": "Sin ningún día, las horas valen todos los días. Borre ambas horas para quitarlas.",
      "Besides, for some messages:": "Además, para algunos mensajes:", "Time zone": "Zona horaria", "UTC, none is chosen": "UTC, no hay ninguna elegida", "Your addresses": "Sus direcciones",
      "Never write to it again": "No volver a escribir a esta dirección",
      "This also stops what is always sent, and cannot be undone here.": "Esto detiene también lo que se envía siempre, y aquí no se puede deshacer.", "Save": "Guardar",
      "Nothing was saved: each span of quiet hours needs a start and a different end.": "No se ha guardado nada: cada intervalo de silencio necesita un inicio y un final distinto.",
      "Nothing was saved: the choices have changed meanwhile, or are not valid. Check them again.": "No se ha guardado nada: las opciones han cambiado entretanto o no son válidas. Revíselas de nuevo.",
      "This does not work at the moment. Try again in a minute.": "Ahora mismo no funciona. Pruebe de nuevo dentro de un minuto.",
      "There are no preferences for this link any more.": "Ya no hay preferencias para este enlace.", "Nothing can be changed here at the moment.": "Ahora mismo no se puede cambiar nada aquí.",
      "Too many requests. Try again in a minute.": "Demasiadas solicitudes. Pruebe de nuevo dentro de un minuto.", "Messenger": "Mensajería", "E-mail": "Correo electrónico",
      "Push to the phone": "Aviso en el teléfono", "In the application": "En la aplicación", "Push to the browser": "Aviso en el navegador", "Mon": "lun", "Tue": "mar", "Wed": "mié", "Thu": "jue",
      "Fri": "vie", "Sat": "sáb", "Sun": "dom", "in use": "en uso", "not confirmed yet": "sin confirmar", "cannot be reached": "no se puede alcanzar", "stopped": "parado",
      "Add an e-mail address": "Añadir una dirección de correo",
      "You get a message with a link at this address. It is used once you have confirmed it there.": "Recibirá un mensaje con un enlace en esta dirección. Se usará cuando la haya confirmado allí.",
      "Send the message": "Enviar el mensaje",
      "Addresses of other kinds are added by the application.": "Las direcciones de otro tipo las añade la aplicación.",
      "If you do not use this address yet, a message is on its way to it. Open its link within 24 hours.": "Si aún no usa esta dirección, un mensaje va de camino. Abra su enlace antes de 24 horas.",
      "This is not an e-mail address that can be reached. Check it.": "No es una dirección de correo a la que se pueda escribir. Revísela.",
      "Too many requests. Try again in an hour.": "Demasiadas solicitudes. Pruebe de nuevo dentro de una hora."
    },
    "pt": {
      "Your notifications": "As suas notificações", "Saved. It applies to all messages that are not sent yet.": "Guardado. Vale para todas as mensagens que ainda não foram enviadas.",
      "What you get": "O que recebe", "There are no messages to choose from.": "Não há mensagens para escolher.",
      "Turned off, nothing is sent that way, except what is always sent. Turned on again, choose below.": "Se desativar, nada é enviado por essa via, exceto o que é sempre enviado. Se ativar de novo, escolha abaixo.",
      "Single kinds of message": "Tipos de mensagem em separado", "Other messages": "Outras mensagens", "All messages": "Todas as mensagens",
      "Collected for %(time)s and sent as one message": "Reunidas durante %(time)s e enviadas numa só mensagem", "always sent": "sempre enviado", "some of them": "alguns deles",
      "only under a condition": "só sob uma condição", "none": "nenhuma", "Quiet hours": "Horas de silêncio",
      "How often": "Com que frequência", "at once": "na hora", "every 15 minutes": "a cada 15 minutos", "once an hour": "uma vez por hora", "once a day": "uma vez por dia",
      "once a week": "uma vez por semana", "every %(time)s": "a cada %(time)s", "as usual: %(times)s": "como habitualmente: %(times)s", "different times": "tempos diferentes",
      "Messages wait for the end of these hours, except what is always sent.": "As mensagens esperam pelo fim destas horas, exceto o que é sempre enviado.",
      "The usual ones: %(hours)s": "As habituais: %(hours)s", "Your own; none if you leave them empty": "As suas; nenhuma se as deixar vazias", "Add hours": "Acrescentar horas",
      "Hours %(number)s": "Horas %(number)s", "From": "De", "To": "Até", "Only on nights that begin on": "Só nas noites que começam em",
      "Without a day, the hours are those of every day. Clear both times to remove them.": "Sem nenhum dia, as horas valem todos os dias. Apague ambas as horas para as retirar.",
      "Besides, for some messages:": "Além disso, para algumas mensagens:", "Time zone": "Fuso horário", "UTC, none is chosen": "UTC, nenhum está escolhido", "Your addresses": "Os seus endereços",
      "Never write to it again": "Nunca mais escrever para este endereço",
      "This also stops what is always sent, and cannot be undone here.": "Isto também para o que é sempre enviado, e não pode ser desfeito aqui.", "Save": "Guardar",
      "Nothing was saved: each span of quiet hours needs a start and a different end.": "Nada foi guardado: cada intervalo de silêncio precisa de um início e de um fim diferente.",
      "Nothing was saved: the choices have changed meanwhile, or are not valid. Check them again.": "Nada foi guardado: as opções mudaram entretanto ou não são válidas. Verifique-as de novo.",
      "This does not work at the moment. Try again in a minute.": "Neste momento não funciona. Tente de novo daqui a um minuto.",
      "There are no preferences for this link any more.": "Já não há preferências para esta ligação.", "Nothing can be changed here at the moment.": "Neste momento não se pode mudar nada aqui.",
      "Too many requests. Try again in a minute.": "Demasiados pedidos. Tente de novo daqui a um minuto.", "Messenger": "Mensageiro", "E-mail": "E-mail", "Push to the phone": "Aviso no telemóvel",
      "In the application": "Na aplicação", "Push to the browser": "Aviso no navegador", "Mon": "seg", "Tue": "ter", "Wed": "qua", "Thu": "qui", "Fri": "sex", "Sat": "sáb", "Sun": "dom",
      "in use": "em uso", "not confirmed yet": "ainda não confirmado", "cannot be reached": "não se consegue alcançar", "stopped": "parado",
      "Add an e-mail address": "Acrescentar um endereço de e-mail",
      "You get a message with a link at this address. It is used once you have confirmed it there.": "Recebe uma mensagem com uma ligação neste endereço. É usado depois de o confirmar aí.",
      "Send the message": "Enviar a mensagem",
      "Addresses of other kinds are added by the application.": "Os endereços de outro tipo são acrescentados pela aplicação.",
      "If you do not use this address yet, a message is on its way to it. Open its link within 24 hours.": "Se ainda não usa este endereço, uma mensagem está a caminho. Abra a ligação no prazo de 24 horas.",
      "This is not an e-mail address that can be reached. Check it.": "Não é um endereço de e-mail para o qual se possa escrever. Verifique-o.",
      "Too many requests. Try again in an hour.": "Demasiados pedidos. Tente de novo daqui a uma hora."
    }
  };
  const CHANNELS = { apns: "Push to the phone", apprise: "Messenger", discord: "Discord", email: "E-mail", expo: "Push to the phone", fcm: "Push to the phone",
    in_app: "In the application", slack: "Slack", sms: "SMS", teams: "Microsoft Teams", telegram: "Telegram", web_push: "Push to the browser", webhook: "Webhook", whatsapp: "WhatsApp" };
  const DAYS = { monday: "Mon", tuesday: "Tue", wednesday: "Wed", thursday: "Thu", friday: "Fri", saturday: "Sat", sunday: "Sun" };
  const TIMES = { 0: "at once", 900: "every 15 minutes", 3600: "once an hour", 86400: "once a day", 604800: "once a week" };
  const STATES = { active: "in use", unverified: "not confirmed yet", invalid: "cannot be reached", unsubscribed: "stopped" };
  const PROBLEMS = {
    403: "Nothing can be changed here at the moment.",
    404: "There are no preferences for this link any more.",
    422: "Nothing was saved: the choices have changed meanwhile, or are not valid. Check them again.",
    429: "Too many requests. Try again in a minute.",
  };
  const LOST = "This does not work at the moment. Try again in a minute.";

  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
:host{display:block;font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere;color:var(--i);
--i:var(--sereno-ink,light-dark(#1a2233,#e8ebf2));--p:var(--sereno-paper,light-dark(#fff,#151b2b));--l:var(--sereno-line,light-dark(#d5dae4,#333c52));--e:light-dark(#7b8498,#7e89a6);
--q:var(--sereno-quiet,light-dark(#566074,#a5afc3));--a:var(--sereno-accent,light-dark(#1f4fa3,#9cc0ff));--o:var(--sereno-accent-ink,light-dark(#fff,#0f1524));--w:light-dark(#b23a30,#f07f74)}
@supports not (color:light-dark(red,red)){:host{--i:var(--sereno-ink,#1a2233);--p:var(--sereno-paper,#fff);--l:var(--sereno-line,#d5dae4);--e:#7b8498;
--q:var(--sereno-quiet,#566074);--a:var(--sereno-accent,#1f4fa3);--o:var(--sereno-accent-ink,#fff);--w:#b23a30}}
:host([theme=light]){color-scheme:light}:host([theme=dark]){color-scheme:dark}
:host([hidden]),[hidden]{display:none!important}
*{box-sizing:border-box}
h2{font-size:1.2em;margin:1.2em 0 .5em}section:first-child h2{margin-top:0}
p{margin:.5em 0}small,.hint{font-size:14px;color:var(--q)}
:focus-visible{outline:2px solid var(--a);outline-offset:2px;border-radius:4px}
.card{background:var(--p);border:1px solid var(--l);border-radius:12px;padding:.7em 1em;margin-bottom:.7em}
.line{display:flex;flex-wrap:wrap;gap:0 20px;align-items:center;justify-content:space-between;padding:.3em 0}
.name{flex:1 1 200px;min-width:0}.name b,.name small{display:block}details .name b{font-weight:400}
.boxes,.days{display:flex;flex-wrap:wrap;gap:0 20px}
label{display:inline-flex;gap:8px;align-items:center;min-height:44px}.fixed{color:var(--q)}
input[type=checkbox],input[type=radio]{width:20px;height:20px;margin:0;accent-color:var(--a);flex:none}
summary{cursor:pointer;color:var(--a);padding:.6em 0;min-height:44px}
fieldset{border:0;margin:0;padding:0;min-width:0}.choice{display:grid}
.span{border-top:1px solid var(--l);padding:.6em 0;margin-top:.6em}.span>label{margin-inline-end:20px}
legend{font-weight:600;padding:0;float:inline-start;width:100%}
input[type=time],input[type=email],select{font:inherit;color:inherit;background:var(--p);border:1px solid var(--e);border-radius:8px;padding:6px 10px;min-height:44px;max-width:100%}
.often{flex:1 1 100%;flex-wrap:wrap;gap:0 12px;color:var(--q)}.often select{color:var(--i);min-width:0}
.zone{display:flex;flex-wrap:wrap;gap:4px 12px}.zone select,.zone input{flex:1 1 200px;min-width:0}
.addresses{list-style:none;margin:0;padding:0}.addresses li{display:flex;flex-wrap:wrap;gap:0 20px;justify-content:space-between;align-items:center}
.wrong{color:var(--w)}
button{font:inherit;font-weight:600;color:var(--o);background:var(--a);border:0;border-radius:10px;padding:.7em 1.7em;min-height:48px;cursor:pointer}
button[aria-disabled]{opacity:.6}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}`);

  // Names of events and categories are inserted as text nodes: nothing from the server is ever parsed as markup.
  function make(tag, attributes = {}, ...inside) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === "boolean") made.toggleAttribute(name, value);
      else made.setAttribute(name, value);
    }
    made.append(...inside.filter((each) => each !== null));
    return made;
  }

  function readable(name) {
    const text = name.replace(/[._-]+/g, " ").trim();
    return text ? text[0].toUpperCase() + text.slice(1) : name;
  }

  function duration(seconds) {
    const parts = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]].map(([unit, size], place, all) =>
      [Math.floor((place ? seconds % all[place - 1][1] : seconds) / size), unit]);
    const first = parts.findIndex(([count]) => count);
    return parts.slice(first, first + 2).filter(([count]) => count).map((each) => each.join(" ")).join(" ");
  }

  function server(address) {
    try {
      const url = new URL(address.replace(/\/*$/, "/"), document.baseURI);
      return /^https?:$/.test(url.protocol) ? url.href : null;
    } catch {
      return null;
    }
  }

  class Preferences extends HTMLElement {
    static observedAttributes = ["server", "token", "lang"];
    #get; #labels = {}; #token; #renewing; #centre; #cells = []; #digests = []; #number = 0;
    #life = new AbortController();
    #body = make("div");
    #saved = make("p", { role: "status" });
    #wrong = make("p", { role: "alert", class: "wrong" });
    #save = make("button", { hidden: true });
    #form = make("form", {}, this.#body, this.#wrong, this.#saved, this.#save);
    #adding = make("div");

    constructor() {
      super();
      const root = this.attachShadow({ mode: "open" });
      root.adoptedStyleSheets = [sheet];
      root.append(this.#form, this.#adding);
      this.#form.addEventListener("submit", (event) => {
        event.preventDefault();
        this.#submit();
      });
    }

    // Called for a token when there is none, or when it has expired.
    get getToken() { return this.#get; }
    set getToken(get) {
      this.#get = get;
      if (this.isConnected && !this.#centre) this.#load();
    }

    // Names for people, by category, event type or channel: { "offer.published": "Offers" }.
    get labels() { return this.#labels; }
    set labels(labels) {
      this.#labels = labels ?? {};
      if (this.#centre) this.#draw();
    }

    connectedCallback() {
      for (const name of ["labels", "getToken"].filter((each) => Object.hasOwn(this, each))) {
        const given = this[name];
        delete this[name];
        if (name === "labels") this.#labels = given ?? {};
        else this.#get = given;
      }
      this.#load();
    }

    disconnectedCallback() { this.#forget(); }

    attributeChangedCallback(name, before, now) {
      if (before === now || !this.isConnected) return;
      if (name === "lang") return void (this.#centre && this.#draw());
      // The new token may be of another user: drop what was shown, and pending responses.
      this.#forget();
      this.#load();
    }

    #forget() {
      this.#life.abort();
      this.#life = new AbortController();
      this.#token = this.#renewing = this.#centre = undefined;
      this.#body.replaceChildren();
      this.#adding.replaceChildren();
      this.#saved.textContent = this.#wrong.textContent = "";
      this.#save.hidden = true;
    }

    get #language() {
      const code = (this.lang || this.parentElement?.closest("[lang]")?.lang || navigator.language).slice(0, 2).toLowerCase();
      return code in WORDS ? code : "en";
    }

    #say(sentence, values = {}) {
      return (WORDS[this.#language]?.[sentence] ?? sentence).replace(/%\((\w+)\)s/g, (_, name) => values[name]);
    }

    #named(name) { return Object.hasOwn(this.#labels, name) ? String(this.#labels[name]) : readable(name); }

    #channel(name) {
      return Object.hasOwn(CHANNELS, name) && !Object.hasOwn(this.#labels, name) ? this.#say(CHANNELS[name]) : this.#named(name);
    }

    #tell(name, detail) { this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true, composed: true })); }

    // Requests

    async #ask(body, path = "") {
      const { signal } = this.#life;
      const address = server(this.getAttribute("server") ?? "");
      if (!address) throw new Error("no server");
      for (let again = true; ; again = false) {
        this.#token ??= this.getAttribute("token") || undefined;
        const token = this.#token ?? (await this.#renew(signal));
        const headers = { Accept: "application/json", Authorization: `Bearer ${token}`, ...(body && { "Content-Type": "application/json" }) };
        const response = await fetch(`${address}api/v1/preference-centre${path}`, { method: path ? "POST" : body ? "PUT" : "GET", headers, signal,
          body: body && JSON.stringify(body), credentials: "omit", cache: "no-store", referrerPolicy: "no-referrer" });
        if (response.status !== 401) return response;
        if (signal.aborted || !again) throw new Error("not let in");
        if (this.#token === token) await this.#renew(signal);
      }
    }

    // One request at a time, however many callers.
    async #renew(signal) {
      this.#renewing ??= (async () => this.#get?.())().catch(() => null);
      const renewing = this.#renewing;
      const token = await renewing;
      if (signal.aborted) throw new Error("the token has changed");
      if (this.#renewing === renewing) {
        this.#renewing = undefined;
        this.#token = typeof token === "string" && token ? token : undefined;
        if (!this.#token) this.#tell("sereno-signed-out");
      }
      if (!this.#token) throw new Error("no token");
      return this.#token;
    }

    // Shows what the server returns, or what went wrong; true if all is well.
    async #take(body) {
      const { signal } = this.#life;
      this.#saved.textContent = this.#wrong.textContent = "";
      try {
        const response = await this.#ask(body);
        const found = response.ok ? await response.json() : null;
        if (signal.aborted) return false;
        if (!found) return void (this.#wrong.textContent = this.#say(PROBLEMS[response.status] ?? LOST));
        this.#centre = found;
        this.#draw();
        return true;
      } catch {
        if (!signal.aborted) this.#wrong.textContent = this.#say(LOST);
        return false;
      }
    }

    #load() {
      if (this.hasAttribute("server") && (this.#get || this.getAttribute("token"))) this.#take();
    }

    async #submit() {
      const changes = this.#changes();
      if (!changes) return void (this.#wrong.textContent = this.#say("Nothing was saved: each span of quiet hours needs a start and a different end."));
      if (this.#save.ariaDisabled) return;
      this.#save.ariaDisabled = "true";
      if (await this.#take(changes)) {
        this.#saved.textContent = this.#say("Saved. It applies to all messages that are not sent yet.");
        this.#tell("sereno-preferences-saved", changes);
      }
      this.#save.ariaDisabled = null;
    }

    // What differs from what was shown; null if the quiet hours cannot be meant.
    #changes() {
      const { quiet, zone } = this.#centre;
      const choices = this.#cells.filter(({ box, choice }) => box.checked !== choice.wanted).map(({ box, choice }) => ({ ...choice, wanted: box.checked }));
      const changes = choices.length ? { choices } : {};
      const digests = this.#digests.filter(({ select, shown }) => select.value !== shown)
        .map(({ select, scope }) => ({ ...scope, digest: select.value === "usual" ? null : Number(select.value) }));
      if (digests.length) changes.digests = digests;
      const spans = [...this.#body.querySelectorAll(".span")].map((each) => {
        const [start, end] = [...each.querySelectorAll("[type=time]")].map((input) => input.value);
        const days = [...each.querySelectorAll(":checked")].map(({ value }) => value);
        return { start, end, days: days.length && days.length < 7 ? days : null };
      }).filter(({ start, end }) => start || end);
      if (spans.some(({ start, end }) => !start || !end || start === end)) return null;
      // Hours that were written beside those of the default are meant, too.
      const isNew = spans.length > 0 && quiet.own === null;
      const isOwn = isNew || (quiet.default.length ? this.#body.querySelector("[value=own]").checked : spans.length > 0 || quiet.own?.length === 0);
      if (JSON.stringify(isOwn ? spans : null) !== JSON.stringify(quiet.own)) changes.quiet = isOwn ? spans : null;
      const chosen = this.#body.querySelector(".zone select").value;
      if (chosen && chosen !== zone) changes.zone = chosen;
      const stop = [...this.#body.querySelectorAll("[name=stop]:checked")].map(({ value }) => Number(value));
      if (stop.length) changes.stop = stop;
      return changes;
    }

    // Drawing

    #draw() {
      this.#cells = [];
      this.#digests = [];
      this.#number = 0;
      this.#form.lang = this.#language;
      this.#form.ariaLabel = this.#say("Your notifications");
      const { addresses, can_add: canAdd } = this.#centre;
      this.#adding.lang = this.#language;
      this.#adding.replaceChildren(...(canAdd.length ? [this.#add()] : []));
      this.#body.replaceChildren(this.#what(), this.#when(), ...(addresses.length ? [this.#where(addresses)] : []));
      this.#save.textContent = this.#say("Save");
      this.#save.hidden = false;
    }

    #section(title, ...inside) {
      const id = `s${++this.#number}`;
      return make("section", { "aria-labelledby": id }, make("h2", { id }, this.#say(title)), ...inside);
    }

    #hint(sentence) { return make("p", { class: "hint" }, this.#say(sentence)); }

    #what() {
      const { lines } = this.#centre;
      const cards = [];
      let details;
      let category;
      for (const line of lines) {
        if (line.event === null && line.category === null) {
          const hint = "Turned off, nothing is sent that way, except what is always sent. Turned on again, choose below.";
          cards.push(make("div", { class: "card" }, this.#line(line, this.#say("All messages")), this.#hint(hint)));
        } else if (line.event === null) {
          category = line.category;
          const name = this.#named(category);
          const summary = make("summary", {}, this.#say("Single kinds of message"), make("span", { class: "unseen" }, ` ${name}`));
          details = make("details", {}, summary);
          cards.push(make("div", { class: "card" }, this.#line(line, name), details));
        } else {
          if (!details || category !== line.category) {
            category = line.category;
            details = make("div", { class: "card" }, make("b", {}, this.#say("Other messages")));
            cards.push(details);
          }
          details.append(this.#line(line, this.#named(line.event)));
        }
      }
      return this.#section("What you get", ...(cards.length ? cards : [make("p", {}, this.#say("There are no messages to choose from."))]));
    }

    #line({ category, event, digest, digest_choice, channels }, name) {
      const id = `l${++this.#number}`;
      const note = !digest ? null : make("small", {}, this.#say("Collected for %(time)s and sent as one message", { time: duration(digest) }));
      const boxes = channels.map((cell) => {
        const box = make("input", { type: "checkbox", disabled: cell.is_fixed });
        box.checked = cell.wanted;
        if (!cell.is_fixed) this.#cells.push({ box, choice: { category, event, channel: cell.channel, wanted: cell.wanted } });
        const why = cell.is_fixed ? "always sent" : cell.is_mixed ? "some of them" : cell.is_limited ? "only under a condition" : null;
        return make("label", cell.is_fixed ? { class: "fixed" } : {}, box, `${this.#channel(cell.channel)} `, why && make("small", {}, this.#say(why)));
      });
      return make("div", { class: "line", role: "group", "aria-labelledby": id },
        make("div", { class: "name" }, make("b", { id, dir: "auto" }, name), note), make("div", { class: "boxes" }, ...boxes),
        digest_choice && this.#often({ category, event }, digest_choice, name));
    }

    // For how long messages are collected. A choice that differs between event types or channels stays until another one is made.
    #often(scope, { chosen, is_mixed, usual }, name) {
      const shown = is_mixed ? "mixed" : String(chosen ?? "usual");
      const said = (time) => Object.hasOwn(TIMES, time) ? this.#say(TIMES[time]) : this.#say("every %(time)s", { time: duration(time) });
      const times = [...new Set([...Object.keys(TIMES).map(Number), ...(chosen === null ? [] : [chosen])])].sort((one, other) => one - other);
      const options = [["usual", this.#say("as usual: %(times)s", { times: usual.map(said).join(", ") })], ...times.map((time) => [String(time), said(time)])];
      if (is_mixed) options.unshift(["mixed", this.#say("different times")]);
      const select = make("select", {}, ...options.map(([value, text]) => make("option", { value, selected: value === shown }, text)));
      this.#digests.push({ select, scope, shown });
      return make("label", { class: "often" }, make("span", {}, this.#say("How often"), make("span", { class: "unseen" }, ` ${name}`)), select);
    }

    #when() {
      const { quiet, zone } = this.#centre;
      const spans = [...(quiet.own ?? []), { start: "", end: "", days: null }];
      const card = make("div", { class: "card" }, make("p", {}, this.#say("Messages wait for the end of these hours, except what is always sent.")));
      if (quiet.default.length) {
        const radio = (value, checked, text) => {
          const button = make("input", { type: "radio", name: "quiet", value });
          button.checked = checked;
          return make("label", {}, button, make("span", {}, text));
        };
        card.append(make("fieldset", { class: "choice" }, make("legend", { class: "unseen" }, this.#say("Quiet hours")),
          radio("default", quiet.own === null, this.#say("The usual ones: %(hours)s", { hours: this.#hours(quiet.default) })),
          radio("own", quiet.own !== null, this.#say("Your own; none if you leave them empty"))));
      }
      card.append(...spans.map((span, place) => this.#span(span, place, spans.length)));
      card.append(this.#hint("Without a day, the hours are those of every day. Clear both times to remove them."));
      if (quiet.others.length) {
        const items = quiet.others.map(({ category, event, channel, spans: own }) => {
          const scope = [event, category].filter(Boolean).map((each) => this.#named(each)).concat(channel ? [this.#channel(channel)] : []);
          return make("li", { dir: "auto" }, `${scope.join(" · ")}: ${this.#hours(own) || this.#say("none")}`);
        });
        card.append(make("p", {}, this.#say("Besides, for some messages:")), make("ul", {}, ...items));
      }
      card.append(this.#zone(zone));
      return this.#section("Quiet hours", card);
    }

    #span({ start, end, days }, place, count) {
      const name = place === count - 1 ? this.#say("Add hours") : this.#say("Hours %(number)s", { number: place + 1 });
      const time = (word, value) => {
        const input = make("input", { type: "time" });
        input.value = value;
        return make("label", {}, this.#say(word), input);
      };
      const boxes = Object.entries(DAYS).map(([day, short]) => {
        const box = make("input", { type: "checkbox", value: day });
        box.checked = Boolean(days?.includes(day));
        return make("label", {}, box, this.#say(short));
      });
      return make("fieldset", { class: "span" }, make("legend", {}, name), time("From", start), time("To", end),
        make("div", { class: "days", role: "group", "aria-label": this.#say("Only on nights that begin on") }, ...boxes));
    }

    #zone(zone) {
      const names = new Set(["UTC", ...Intl.supportedValuesOf("timeZone"), ...(zone ? [zone] : [])]);
      const select = make("select", {}, ...(zone ? [] : [make("option", { value: "" }, this.#say("UTC, none is chosen"))]),
        ...[...names].sort().map((name) => make("option", { selected: name === zone }, name)));
      return make("label", { class: "zone" }, this.#say("Time zone"), select);
    }

    #hours(spans) {
      return spans.map(({ start, end, days }) => `${start}–${end}${days ? ` (${days.map((day) => this.#say(DAYS[day])).join(", ")})` : ""}`).join(", ");
    }

    #where(addresses) {
      const items = addresses.map(({ id, channel, address, state }) => {
        const name = this.#channel(channel);
        const isUsed = state === "active" || state === "unverified";
        return make("li", {}, make("span", {}, make("b", {}, name), " ", make("span", { dir: "ltr" }, address), " ", make("small", {}, this.#say(STATES[state] ?? state))),
          isUsed ? make("label", {}, make("input", { type: "checkbox", name: "stop", value: id }),
            make("span", {}, this.#say("Never write to it again"), make("span", { class: "unseen" }, ` ${name} ${address}`))) : null);
      });
      return this.#section("Your addresses", make("div", { class: "card" }, make("ul", { class: "addresses", role: "list" }, ...items),
        this.#hint("This also stops what is always sent, and cannot be undone here.")));
    }

    #add() {
      const input = make("input", { type: "email", maxlength: 254, autocomplete: "email", required: true });
      const told = make("p", { role: "status" });
      const form = make("form", { class: "card" }, make("p", {}, this.#say("You get a message with a link at this address. It is used once you have confirmed it there.")),
        make("label", { class: "zone" }, this.#say("E-mail"), input), make("p", {}, make("button", {}, this.#say("Send the message"))), told,
        this.#hint("Addresses of other kinds are added by the application."));
      form.addEventListener("submit", async (event) => {
        event.preventDefault();
        told.textContent = this.#say(await this.#request(input.value));
      });
      return this.#section("Add an e-mail address", form);
    }

    // Returns what to say. The server does not tell whether the recipient has the address already.
    async #request(address) {
      try {
        const { ok, status } = await this.#ask({ address, language: this.#language }, "/addresses");
        if (ok) return "If you do not use this address yet, a message is on its way to it. Open its link within 24 hours.";
        if (status === 422) return "This is not an e-mail address that can be reached. Check it.";
        return status === 429 ? "Too many requests. Try again in an hour." : PROBLEMS[status] ?? LOST;
      } catch {
        return LOST;
      }
    }
  }

  if (!customElements.get("sereno-preferences")) customElements.define("sereno-preferences", Preferences);
})();
