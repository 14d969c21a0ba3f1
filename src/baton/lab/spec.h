#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/lab/experiment.h"

namespace baton::lab {

/// An experiment that a user wrote as TOML, sweeping anything that `train` can do:
///
///   title = "Buckets on a slow link"
///   question = "Which bucket size hides most?"     # optional
///   [job]                                          # what all points share, by the names of train's flags
///   model = "mlp:dim=512,depth=4"
///   strategy = "ddp"
///   devices = "cpu:2"
///   link = "bandwidth=1GB/s,latency=50us"
///   [axes]                                         # every combination is measured
///   bucket-mb = [0.1, 1, 25]
///   [baseline]                                     # optional: the row that the others' speedup is over, by values of some axes;
///   bucket-mb = 25                                 # rows are compared that agree in the other axes. Without it: the first row
///
/// `id` names it in results. A usage error says which line or name is wrong.
Experiment parse_spec(std::string_view toml, const std::string& id);

/// The fields that the spec's [job] sets, with their values.
std::vector<std::pair<std::string, std::string>> spec_job(std::string_view toml);

}  // namespace baton::lab
