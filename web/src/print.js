import {setTheme, theme} from './theme.js';

/** On paper everything is open and light, and timelines are pictures of the whole step. */
export function preparePrinting() {
  let before = null;
  const start = () => {
    if (before) return;
    const closed = [...document.querySelectorAll('details:not([open])')];
    before = {theme: theme(), closed};
    setTheme('light');
    for (const details of closed) details.open = true;
    for (const figure of document.querySelectorAll('figure.timeline')) figure.paintPrints();
  };
  const end = () => {
    if (!before) return;
    for (const details of before.closed) details.open = false;
    setTheme(before.theme);
    for (const place of document.querySelectorAll('.prints')) place.replaceChildren();
    before = null;
  };
  addEventListener('beforeprint', start);
  addEventListener('afterprint', end);
  matchMedia('print').addEventListener('change', (change) => (change.matches ? start() : end()));
}
