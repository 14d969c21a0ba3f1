import {h} from './dom.js';

/** Experiments by part, in the order the report has them: [{part, title, experiments}]. */
export function partsOf(experiments) {
  const parts = new Map();
  for (const experiment of experiments) {
    const {part} = experiment;
    if (!parts.has(part)) parts.set(part, []);
    parts.get(part).push(experiment);
  }
  return [...parts].map(([part, members]) => ({part, title: members[0].part_title || 'Experiments', experiments: members}));
}

export function tableOfContents(parts) {
  const list = parts.map(({part, title, experiments}) => [
    h('p', {class: 'part-name'}, part ? h('span', {class: 'letter'}, part) : null, title),
    h('ol', {}, experiments.map((experiment) => h('li', {}, h('a', {href: `#${experiment.anchor}`}, experiment.title)))),
  ]);
  const wide = matchMedia('(min-width: 64rem)');
  const details = h('details', {}, h('summary', {}, 'Contents'), h('nav', {'aria-label': 'Contents'}, list));
  const adapt = () => { details.open = wide.matches; };
  wide.addEventListener('change', adapt);
  adapt();
  details.addEventListener('click', (event) => {
    if (event.target.closest('a') && !wide.matches) details.open = false;
  });
  return details;
}

/** Marks the section that is being read. */
export function followReading(nav) {
  const links = new Map([...nav.querySelectorAll('a[href^="#"]')].map((link) => [link.getAttribute('href').slice(1), link]));
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute('aria-current');
      links.get(entry.target.id)?.setAttribute('aria-current', 'true');
    }
  }, {rootMargin: '-15% 0px -75% 0px'});
  for (const id of links.keys()) {
    const section = document.getElementById(id);
    if (section) observer.observe(section);
  }
}
