import {drawForPaper} from 'charts';
import {h} from './dom.js';
import {setTheme, theme} from './theme.js';

const textOnPaper = 680; // pixels between the margins of a page of A4

/** The name of the report and the page's number stand at the foot of every page. */
function pageFoot(title) {
  const quoted = JSON.stringify(title).replaceAll('<', '\\3c ');
  const style = h('style');
  style.textContent = `@page { @bottom-left { content: ${quoted}; } @bottom-right { content: counter(page) " of " counter(pages); } }`;
  document.head.append(style);
}

/** On paper the page is light, short details are open, plots are drawn for its width and each experiment has one timeline. */
export function preparePrinting(report, places) {
  pageFoot(report.title);
  let before = null;
  const start = () => {
    if (before) return;
    const closed = [...document.querySelectorAll('details.short:not([open]), details.environment:not([open])')];
    before = {theme: theme(), closed};
    setTheme('light');
    for (const details of closed) details.open = true;
    drawForPaper(places, (place) => (place.closest('.plots').matches('.several') ? (textOnPaper - 20) / 2 : Math.round(textOnPaper * 0.7)));
    for (const figure of document.querySelectorAll('figure.timeline')) figure.paintPrint();
  };
  const end = () => {
    if (!before) return;
    for (const details of before.closed) details.open = false;
    setTheme(before.theme);
    for (const place of document.querySelectorAll('.prints')) place.replaceChildren();
    before = null;
    drawForPaper(places, (place) => Math.round(place.clientWidth));
  };
  addEventListener('beforeprint', start);
  addEventListener('afterprint', end);
  matchMedia('print').addEventListener('change', (change) => (change.matches ? start() : end()));
}
