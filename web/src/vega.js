// Vega without maps, forces, trees and word clouds: what plots of a report are made with. The build puts this file in
// the place of the package `vega`.
import {transforms} from 'vega-dataflow';
import * as encode from 'vega-encode';
import * as basic from 'vega-transforms';
import * as layout from 'vega-view-transforms';

Object.assign(transforms, basic, layout, encode);

export * from 'vega-util';
export {parse} from 'vega-parser';
export {View} from 'vega-view';
