// Requests to the API: they time out, so that no button stays disabled when the server does not answer.
const LIMIT = 30000;

export async function request(path, options = {}) {
  // By a timer of the page and not AbortSignal.timeout, so that a test can move its clock.
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), LIMIT);
  try {
    const response = await fetch(`${document.body.dataset.base}api/v1/${path}`, { credentials: "same-origin", signal: late.signal, ...options });
    const text = await response.text();
    let content = null;
    try {
      content = text ? JSON.parse(text) : null;
    } catch {
      content = { detail: text.slice(0, 300) };
    }
    if (!response.ok) throw new Error(content?.detail || `${response.status} ${response.statusText}`);
    return content;
  } catch (error) {
    throw late.signal.aborted ? new Error(document.body.dataset.late) : error;
  } finally {
    clearTimeout(timer);
  }
}
