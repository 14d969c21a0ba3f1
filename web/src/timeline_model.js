// What a timeline shows, apart from how: rows, and for each event its kind.

/** In the order of the legend. */
export const kinds = {
  forward: 'forward',
  backward: 'backward',
  update: 'update',
  communication: 'communication',
  waiting: 'waiting for others',
  delay: 'delay',
  other: 'other work',
  idle: 'idle',
};

const laneHeights = {compute: 30, communication: 20, host: 16};

export function kindOf(event, laneName) {
  if (event.name === 'delay') return 'delay';
  if (laneName === 'communication') return 'communication';
  return ['forward', 'backward', 'update'].includes(event.phase) ? event.phase : 'other';
}

/** From its start until then the event waited for others. */
export function metOf(event) {
  return event.met > event.start ? Math.min(event.met, event.end) : event.start;
}

/** A row for each device and lane that has events, each with its events in order of time, which get their kind. */
export function rowsOf(timeline) {
  const lanes = timeline.devices.map(() => timeline.lanes.map(() => []));
  for (const event of timeline.events) {
    lanes[event.device][event.lane].push(Object.assign(event, {kind: kindOf(event, timeline.lanes[event.lane]), met: metOf(event)}));
  }
  // A device that did nothing at all keeps its first lane: it is there, and idle.
  const shown = (own, lane, device) => own.length > 0 || (lane === 0 && lanes[device].every((events) => events.length === 0));
  return timeline.devices.flatMap((deviceName, device) => timeline.lanes.map((laneName, lane) => ({
    device, lane, laneName, deviceName, height: laneHeights[laneName], events: lanes[device][lane].sort((a, b) => a.start - b.start),
  })).filter(({events}, lane) => shown(events, lane, device)));
}

export function durationOf(timeline) {
  return timeline.events.reduce((most, event) => Math.max(most, event.end), Math.max(1, timeline.duration_ns));
}

export function kindsIn(rows) {
  const found = new Set(rows.flatMap((row) => row.events.map((event) => event.kind)));
  if (rows.some((row) => row.events.some((event) => event.met > event.start))) found.add('waiting');
  found.add('idle');
  return Object.keys(kinds).filter((kind) => found.has(kind));
}

/** What fits into a box: from the fullest wording to the shortest. */
export function labelsOf(event) {
  const block = event.block >= 0 ? event.block : null;
  const batch = event.micro_batch >= 0 ? event.micro_batch : null;
  const {name} = event;
  const where = [block !== null ? `block ${block}` : '', batch !== null ? `micro-batch ${batch}` : ''].filter(Boolean).join(', ');
  const short = [block !== null ? `b${block}` : '', batch !== null ? `m${batch}` : ''].filter(Boolean).join(' ');
  const labels = where ? [`${name} · ${where}`, where, `${name} ${short}`, short] : [name];
  if (block !== null && batch === null) labels.push(String(block));
  if (batch !== null) labels.push(String(batch));
  return labels.filter(Boolean);
}

/** The critical events one after the other in time, as (row, event). */
export function criticalPath(rows) {
  return rows.flatMap((row, index) => row.events.filter((event) => event.critical).map((event) => ({row: index, event})))
    .sort((a, b) => a.event.end - b.event.end);
}
