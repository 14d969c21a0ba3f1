// The check of 08-link-cost. Links from a cable to NVLink are drawn, and measurements of them with an error of 2 %.

#include <fmt/format.h>

#include <cmath>

#include "baton/exercise/exercises.h"

namespace baton::exercise {
namespace {

struct Drawn {
  double latency = 0;
  double bandwidth = 0;
  std::vector<double> bytes;
  std::vector<double> seconds;
  double time(double size) const { return latency + size / bandwidth; }
};

/// Sizes on both sides of latency × bandwidth, where both terms are equal: otherwise one of the two could not be known.
Drawn draw_link(Session& session, bool disturbed) {
  Drawn link{session.draw_log(5e-7, 1e-3), session.draw_log(1e7, 4e11), {}, {}};
  const double both = link.latency * link.bandwidth;
  const std::int64_t count = session.draw(12, 40);
  for (std::int64_t i = 0; i < count; ++i) {
    const double size = std::ceil(both * std::pow(10, -2 + 5 * static_cast<double>(i) / static_cast<double>(count - 1)));
    const double noise = std::exp(0.02 * session.draw_normal());
    link.bytes.push_back(size);
    // So that relative errors alone, by which the longest count little, are off by more than is allowed.
    link.seconds.push_back(link.time(size) * noise * (disturbed && i % 4 == 2 ? session.draw_log(1.5, 4) : 1));
  }
  return link;
}

std::string off(const char* what, double got, double wanted, double allowed) {
  const double error = got / wanted - 1;
  return std::abs(error) <= allowed ? ""
                                    : fmt::format("{} is {:.4g} and should be {:.4g}: {:+.1f} %", what, got, wanted, 100 * error);
}

}  // namespace

void check_link_cost(Session& session) {
  GradedPart& latency = session.part("the latency is right to 6 %", 3);
  GradedPart& bandwidth = session.part("the bandwidth is right to 6 %", 2);
  GradedPart& prediction = session.part("times of other sizes are right to 8 %", 2);
  GradedPart& robust = session.part("all that holds as well if some measurements are far too long", 3);
  for (int i = 0; i < 60; ++i) {
    const bool disturbed = i % 2 == 1;
    const Drawn link = draw_link(session, disturbed);
    const std::string what = fmt::format("{:.3g} s and {:.3g} B/s, {} measurements{}", link.latency, link.bandwidth,
                                         link.bytes.size(), disturbed ? ", some disturbed" : "");
    session.ask(what, Writer().add(link.bytes).add(link.seconds), [&](Reader& answer) {
      const double alpha = answer.real();
      const double beta = answer.real();
      const auto in_case = [&](const std::string& flaw) { return flaw.empty() ? "" : session.in_case() + " " + flaw; };
      const std::string wrong_latency = in_case(off("the latency", alpha, link.latency, 0.06));
      const std::string wrong_bandwidth = in_case(off("the bandwidth", beta, link.bandwidth, 0.06));
      const double size = link.latency * link.bandwidth * session.draw_log(0.02, 500);
      const std::string wrong_time = in_case(off("the time of another size", alpha + size / beta, link.time(size), 0.08));
      if (disturbed) {
        robust.judge(!wrong_latency.empty() ? wrong_latency : !wrong_bandwidth.empty() ? wrong_bandwidth : wrong_time);
      } else {
        latency.judge(wrong_latency);
        bandwidth.judge(wrong_bandwidth);
        prediction.judge(wrong_time);
      }
    });
  }
}

}  // namespace baton::exercise
