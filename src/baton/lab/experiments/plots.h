#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "baton/findings/fits.h"
#include "baton/lab/experiment.h"

/// Plots that several experiments have, and what is drawn in them that is not a row.
namespace baton::lab {

/// Amdahl's law as it was fitted through the rows with a core per device, as speedup over the fewest devices. Nothing if
/// it does not apply.
std::vector<Curve> amdahl_curves(const std::vector<Record>& rows);

/// The speedup against the devices, with Amdahl's law through the points.
Plot amdahl_plot();

/// A plot for strong scaling: the ideal step, and where the rest of the step was lost.
Plot account_plot();

/// The times of the first steps, warm-up included, a line for each run.
Plot first_steps_plot();

/// The speedup with a delay of d, if the step without it takes c on one device and cₙ on n: (c + d) / (cₙ + d). A curve for each
/// number of devices.
std::vector<Curve> delay_curves(const std::vector<Record>& rows);

/// One bar per device, for every row that says what its devices did: where the step of each went.
Plot device_plot(std::string title);

/// A histogram of the times of steps, with one outline per value of `series`. Rows with the most devices that have a core
/// each.
Plot spread_plot(std::string series);

/// The time of each message against its size.
Plot message_plot(std::function<std::vector<Curve>(const std::vector<Record>& rows)> curves);

/// Latency + size / bandwidth, through the all-reduces between two devices with a core each that no computing overlapped: the
/// median of each size.
struct MessageFit {
  findings::AlphaBeta law;
  std::vector<double> sizes;
  /// True if it is claimed: physical, and off by at most half.
  bool holds() const { return law.alpha_ns >= 0 && law.beta > 0 && law.worst_residual <= 0.5; }
};
/// Fits the messages of the rows; nullopt if they have fewer than three sizes.
std::optional<MessageFit> fit_messages(const std::vector<Record>& rows);

/// The fitted formula as a curve; none if it does not hold.
std::vector<Curve> message_curves(const std::vector<Record>& rows);

}  // namespace baton::lab
