// Updates texts such as "3 m ago" in the same format as the server.
function spoken(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  for (const [name, size, smaller, part] of [["d", 86400, "h", 3600], ["h", 3600, "m", 60], ["m", 60, "s", 1]]) {
    if (whole >= size) {
      const rest = Math.floor((whole % size) / part);
      return rest ? `${Math.floor(whole / size)} ${name} ${rest} ${smaller}` : `${Math.floor(whole / size)} ${name}`;
    }
  }
}

export function tell() {
  for (const time of document.querySelectorAll("time[datetime]:not([data-fixed])")) {
    const exact = (Date.parse(time.dateTime) - Date.now()) / 1000;
    // What has passed for the server has not become future because the clock of this device is behind.
    const seconds = "past" in time.dataset ? Math.min(exact, 0) : exact;
    const form = (seconds > 0 ? document.body.dataset.in : document.body.dataset.ago) || (seconds > 0 ? "in %s" : "%s ago");
    const words = form.replace("%s", spoken(Math.abs(seconds)));
    if (time.textContent !== words) time.textContent = words;
  }
}

setInterval(tell, 1000);
