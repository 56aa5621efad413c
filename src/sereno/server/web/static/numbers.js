// A number in the format of the page's language.
export function figure(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, document.body.dataset.thousands);
}
