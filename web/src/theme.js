import {h} from './dom.js';

const listeners = [];
const prefersDark = matchMedia('(prefers-color-scheme: dark)');

/** Called after the colours have changed; what is painted on a canvas is painted again. */
export function onTheme(listener) {
  listeners.push(listener);
}

export function theme() {
  return document.documentElement.dataset.theme;
}

export function setTheme(name) {
  document.documentElement.dataset.theme = name;
  for (const listener of listeners) listener();
}

// A page opened from a file may have no storage.
function remembered() {
  try {
    return localStorage.getItem('baton-theme');
  } catch {
    return null;
  }
}

function remember(name) {
  try {
    localStorage.setItem('baton-theme', name);
  } catch {
    // Then it is not remembered.
  }
}

const systemTheme = () => (prefersDark.matches ? 'dark' : 'light');

export function startTheme() {
  setTheme(remembered() ?? systemTheme());
  prefersDark.addEventListener('change', () => {
    if (!remembered()) setTheme(systemTheme());
  });
}

export function themeButton() {
  const button = h('button', {type: 'button', class: 'theme'});
  const name = () => { button.textContent = theme() === 'dark' ? 'Light' : 'Dark'; };
  button.setAttribute('aria-label', 'Switch between light and dark');
  button.addEventListener('click', () => {
    setTheme(theme() === 'dark' ? 'light' : 'dark');
    remember(theme());
  });
  onTheme(name);
  name();
  return button;
}
