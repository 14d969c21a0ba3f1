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
  return Number.isFinite(event.met) && event.met > event.start ? Math.min(event.met, event.end) : event.start;
}

const largest = (events, value, least) => events.reduce((most, event) => Math.max(most, value(event)), least);

/** A row for each device and lane that has events, each with its events in order of time. */
export function rowsOf(timeline) {
  const rows = [];
  const events = timeline.events ?? [];
  const laneNames = timeline.lanes ?? ['compute', 'communication', 'host'];
  const deviceCount = largest(events, (event) => (event.device ?? 0) + 1, timeline.devices?.length ?? 0);
  const laneCount = largest(events, (event) => (event.lane ?? 0) + 1, laneNames.length);
  for (let device = 0; device < deviceCount; device++) {
    for (let lane = 0; lane < laneCount; lane++) {
      const laneName = laneNames[lane] ?? `lane ${lane}`;
      const own = events.filter((event) => (event.device ?? 0) === device && (event.lane ?? 0) === lane)
        .sort((a, b) => a.start - b.start);
      // A device that did nothing at all keeps its first lane: it is there, and idle.
      if (own.length === 0 && !(lane === 0 && !events.some((event) => (event.device ?? 0) === device))) continue;
      rows.push({
        device, lane, laneName,
        deviceName: timeline.devices?.[device] ?? `device ${device}`,
        height: laneHeights[laneName] ?? 20,
        events: own.map((event) => ({...event, kind: kindOf(event, laneName), met: metOf(event)})),
      });
    }
  }
  return rows;
}

export function durationOf(timeline) {
  return largest(timeline.events ?? [], (event) => event.end ?? 0, Math.max(1, timeline.duration_ns ?? 0));
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
  const name = event.name ?? '';
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
