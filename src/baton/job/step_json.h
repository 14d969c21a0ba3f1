#pragma once

#include <string>
#include <vector>

#include "baton/cluster/cluster.h"
#include "baton/job/record.h"
#include "baton/job/spec.h"
#include "baton/job/study.h"
#include "baton/op/optimizer.h"
#include "baton/plan/plan.h"

/// The result of steps, as `train --json` and `simulate --json` print it (docs/measuring.md says what each key means).
namespace baton::job {

/// A value of JSON as one of a field: a number stays a number, anything but a number or a string is its JSON text.
FieldValue field_value(const Json& value);
/// The inverse.
Json to_json(const FieldValue& value);

/// Samples per second at the median step; 0 if no step was timed.
double samples_per_s(const std::vector<Nanoseconds>& timed, std::int64_t batch);
/// The times of the steps that were timed: `time_per_step_ns` is their median, from `time_low_ns` to `time_high_ns` its interval.
/// All are of one instance: what another run of the same job would differ by is not in it.
Record times_record(const std::vector<Nanoseconds>& timed, std::int64_t batch, trace::Origin origin);
/// The work and the messages of a step, over all devices. `flops` is the number of its flops, also if it exceeds 64 bits.
Record totals_record(const plan::Totals& totals, double flops);
/// One record per device of the plan: shares of the step, memory and bytes. `here`: the devices that ran it; nullptr if
/// none did.
std::vector<Record> device_records(const plan::Plan& plan, const Study& study, const std::vector<Bytes>& peak,
                                   const cluster::Cluster* here);
/// The arrivals of devices at collectives.
std::vector<Record> arrival_records(const Study& study);
/// Shares of the step, by kind.
Json path_json(const Study& study);
/// The job with what the optimizer has by default filled in.
JobSpec with_rates_of(JobSpec spec, const op::Optimizer& optimizer);
/// All fields by name: numbers as numbers, and other values as the command line takes them.
Json settings_json(const JobSpec& spec);
/// The fields with which the playground simulates the job, on this many devices of its cluster or of `otherwise`, if it ran on this
/// machine. Null if they name files, which a browser does not have.
Json playground_words(const JobSpec& spec, std::size_t devices, std::string_view otherwise);
/// The traced step of median length, for drawing; null if none was traced.
Json timeline_json(const plan::Plan& plan, const trace::Trace& trace, const std::string& label);

}  // namespace baton::job
