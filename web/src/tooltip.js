import {h} from './dom.js';

// One for the page: plots and timelines take turns. It is announced when it changes.
const tooltip = h('div', {class: 'tooltip', role: 'status', 'aria-live': 'polite', hidden: true});

export function showTooltip(content, clientX, clientY) {
  if (!tooltip.isConnected) document.body.append(tooltip);
  tooltip.replaceChildren(...content);
  tooltip.hidden = false;
  const margin = 12;
  const {width, height} = tooltip.getBoundingClientRect();
  const {clientWidth, clientHeight} = document.documentElement;
  const left = clientX + margin + width > clientWidth ? clientX - margin - width : clientX + margin;
  const top = clientY + margin + height > clientHeight ? clientY - margin - height : clientY + margin;
  tooltip.style.left = `${Math.max(4, Math.min(left, clientWidth - width - 4))}px`;
  tooltip.style.top = `${Math.max(4, top)}px`;
}

export function hideTooltip() {
  tooltip.hidden = true;
}
