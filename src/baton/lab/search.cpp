#include "baton/lab/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "baton/base/error.h"
#include "baton/base/stop.h"
#include "baton/cost/roofline.h"
#include "baton/lab/rows.h"
#include "baton/lab/simulation.h"
#include "baton/lab/training.h"
#include "baton/schedule/schedule.h"

namespace baton::lab {
namespace {

/// A product that is to be tried, and what it cannot beat.
struct Candidate {
  JobWords words;
  double least_time = 0;    // nanoseconds
  double least_memory = 0;  // bytes
};

struct Product {
  std::int64_t dp, pp, tp, zero;
};

/// The most that a port carries in a second, whatever the size of messages; 0: no limit.
double widest_port(const cluster::Cluster& cluster) {
  if (!cluster.wiring()) {
    return 0;
  }
  const cluster::Link& port = cluster.wiring()->port;
  double most = port.bandwidth;
  for (const cluster::Link::Piece& piece : port.pieces) {
    most = most == 0 || piece.bandwidth == 0 ? 0 : std::max(most, piece.bandwidth);
  }
  return most;
}

/// The figures from which lower bounds of time and memory are computed.
class BoundInputs {
 public:
  explicit BoundInputs(const Job& job)
      : devices(static_cast<std::int64_t>(job.cluster().size())),
        batch(job.request().step.global_batch),
        speed_(job.cluster().devices()[0].speed),
        port_(widest_port(changed(job.cluster(), job.what_if()))),
        compute_(job.what_if().compute),
        type_(strategy::dtype_of(job.request().step.precision)),
        tf32_(job.request().step.precision == strategy::Precision::tf32),
        element_(static_cast<double>(size_of(type_))),
        parameters_(static_cast<double>(job.model().parameter_count()) * element_),
        states_(static_cast<double>(op::state_slots(job.request().step.optimizer))) {
    for (std::size_t block = 0; block < job.model().blocks().size(); ++block) {
      for (const op::ProductExtents& one : job.model().products(block)) {
        products_.push_back(
            {static_cast<double>(one.rows), static_cast<double>(one.out), static_cast<double>(one.in), block == 0 ? 2.0 : 3.0});
      }
    }
  }

  const std::int64_t devices;
  const std::int64_t batch;

  /// No step takes less than the products of a device at the efficiency of their largest extents, and its update; nor than
  /// gradients need through a port.
  double least_time(const Product& product, std::int64_t micro_batches) const {
    const auto pieces = static_cast<double>(micro_batches);
    const double samples = static_cast<double>(batch) / static_cast<double>(product.dp) / pieces;
    const auto tp = static_cast<double>(product.tp);
    double computing = 0;
    for (const Matrix& matrix : products_) {
      const double rows = samples * matrix.positions;
      const double extent = std::min({rows, matrix.rows, matrix.columns});
      const double rate = cost::product_rate(speed_, type_, tf32_, extent);
      const double arithmetic = over(2 * rows * matrix.rows * matrix.columns / tp, rate);
      const double weights = over(matrix.rows * matrix.columns * element_ / tp, speed_.memory_bandwidth);
      computing += matrix.products * pieces * (static_cast<double>(speed_.launch.count) + std::max(arithmetic, weights));
    }
    const double part = parameters_ / static_cast<double>(product.pp * product.tp);
    const auto dp = static_cast<double>(product.dp);
    const double updating = states_ == 0 ? 0
                                         : over(part * (3 + 2 * states_) / (product.zero > 0 ? dp : 1), speed_.memory_bandwidth);
    const double moving = over(2 * (dp - 1) / dp * part, port_);
    return std::max((computing / static_cast<double>(product.pp) + updating) / compute_, moving);
  }

  /// No device holds less than its part of the parameters and states.
  double least_memory(const Product& product) const {
    const auto dp = static_cast<double>(product.dp);
    const double part = parameters_ / static_cast<double>(product.pp * product.tp);
    return part / (product.zero == 3 ? dp : 1) + part * states_ / (product.zero > 0 ? dp : 1);
  }

 private:
  struct Matrix {
    double positions;  // rows of one sample
    double rows, columns;
    double products;  // forward, gradient of the weights and, but for the first block, of the input
  };
  static double over(double amount, double rate) { return rate > 0 ? amount / rate * 1e9 : 0; }

  cluster::Speed speed_;
  double port_;
  double compute_;
  DType type_;
  bool tf32_;
  double element_;
  double parameters_;  // bytes, at least
  double states_;
  std::vector<Matrix> products_;
};

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> list;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) {
      list.push_back(d);
    }
  }
  return list;
}

/// The numbers of devices that are tried: those that divide what there is, and powers of two.
std::vector<std::int64_t> device_counts(std::int64_t devices) {
  std::vector<std::int64_t> list;
  for (std::int64_t n = 1; n <= devices; ++n) {
    if (devices % n == 0 || (n & (n - 1)) == 0) {
      list.push_back(n);
    }
  }
  return list;
}

/// Pieces that a replica's rows are worked off in: none, or for a pipeline once, twice and four times its devices.
std::vector<std::int64_t> micro_batches(std::int64_t pp, std::int64_t rows) {
  std::vector<std::int64_t> list;
  for (const std::int64_t times : {1, 2, 4}) {
    if (const std::int64_t count = pp == 1 ? times : pp * times; count <= rows) {
      list.push_back(count);
    }
  }
  return list;
}

/// Whether it is one device without micro-batches or recomputation: what every split is compared with.
bool is_plain_device(const JobWords& words) {
  return words.devices == "1" && words.micro_batches == "1" && words.recompute == "none";
}

std::vector<Candidate> candidates(const JobWords& shared, const BoundInputs& inputs) {
  std::vector<std::string> schedules;
  for (const schedule::Schedule& schedule : schedule::schedules()) {
    schedules.push_back(schedule.name);
  }
  std::vector<Candidate> list;
  const auto add = [&](const Product& product, const std::string& schedule, std::int64_t pieces, const std::string& recompute) {
    Candidate candidate{shared};
    JobWords& words = candidate.words;
    words.strategy = "product";
    words.dp = fmt::format("{}", product.dp);
    words.pp = fmt::format("{}", product.pp);
    words.tp = fmt::format("{}", product.tp);
    words.zero = product.zero > 0 ? fmt::format("{}", product.zero) : "";
    words.schedule = schedule;
    words.micro_batches = fmt::format("{}", pieces);
    words.recompute = recompute;
    words.fold = "always";
    words.devices = fmt::format("{}", product.dp * product.pp * product.tp);
    candidate.least_time = inputs.least_time(product, pieces);
    candidate.least_memory = inputs.least_memory(product);
    list.push_back(std::move(candidate));
  };
  const auto add_all = [&](std::int64_t dp, std::int64_t pp, std::int64_t tp) {
    for (std::int64_t zero = 0; zero <= (dp > 1 ? 3 : 0); ++zero) {
      for (const std::string& schedule : pp > 1 ? schedules : std::vector<std::string>{""}) {
        for (const std::int64_t pieces : micro_batches(schedule == "naive" ? 1 : pp, inputs.batch / dp)) {
          for (const std::string recompute : {"none", "all"}) {
            add({dp, pp, tp, zero}, schedule, pieces, recompute);
          }
        }
      }
    }
  };
  for (const std::int64_t devices : device_counts(inputs.devices)) {
    for (const std::int64_t pp : divisors(devices)) {
      for (const std::int64_t tp : divisors(devices / pp)) {
        add_all(devices / pp / tp, pp, tp);
      }
    }
  }
  // One device first, since it is always shown; then those that may win, so that what they reach rules others out.
  std::stable_sort(list.begin(), list.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(!is_plain_device(a.words), a.least_time) < std::pair(!is_plain_device(b.words), b.least_time);
  });
  return list;
}

/// On devices that hold anything: whether the memory it takes is there is asked afterwards.
Found simulate(const Candidate& candidate, const cluster::Machine& machine, const Own& own) {
  JobWords words = candidate.words;
  words.memory = "1024T";
  Training run(words, machine, {}, nullptr, {}, own);
  run.run(1, 0);
  return {.words = candidate.words,
          .name = strategy::describe(run.job().request()) + (words.recompute == "none" ? "" : ", recompute " + words.recompute),
          .step = run.timed()[0],
          .memory = *std::max_element(run.peak().begin(), run.peak().end()),
          .time = run.mean_time()};
}

/// Whether the second is the first with recomputation, which here saves nothing: a stage of one block lets go of nothing.
bool same_but_recomputing(const Found& plain, const Found& recomputing) {
  JobWords words = recomputing.words;
  words.recompute = "none";
  return plain.words == words && recomputing.words.recompute != "none" && recomputing.memory >= plain.memory &&
         recomputing.step >= plain.step;
}

/// What is chosen here cannot be asked for.
void refuse_choices(const JobWords& words) {
  for (const std::string_view name : {"strategy", "dp", "pp", "tp", "zero", "schedule", "micro-batches", "recompute", "fold"}) {
    for (const JobField& field : job_fields()) {
      if (field.name == name && words.*field.word != JobWords{}.*field.word) {
        throw usage_error("a search chooses --{} itself: leave it out, or give the split to baton simulate", name);
      }
    }
  }
}

bool hopeless(const Candidate& candidate, const std::vector<Found>& found) {
  return std::any_of(found.begin(), found.end(), [&](const Found& one) {
    return static_cast<double>(one.step.count) <= candidate.least_time &&
           static_cast<double>(one.memory.count) <= candidate.least_memory;
  });
}

}  // namespace

SearchResult search(const JobWords& shared, const cluster::Machine& machine, const SearchProgress& progress, const Own& own) {
  refuse_choices(shared);
  if (own.strategy || own.schedule) {
    throw usage_error("a search chooses strategy and schedule itself: give yours to a simulation");
  }
  const Job job(shared, machine, nullptr, own);
  if (!job.imagined()) {
    throw usage_error("a search simulates hundreds of splits: give it a cluster with --cluster");
  }
  require_rates(job);
  const BoundInputs inputs(job);
  const std::vector<cluster::Device>& devices = job.cluster().devices();
  const auto memory = static_cast<double>(
      std::min_element(devices.begin(), devices.end(), [](const cluster::Device& a, const cluster::Device& b) {
        return a.memory < b.memory;
      })->memory.count);
  const std::vector<Candidate> list = candidates(shared, inputs);
  SearchResult result;
  result.device_memory = job.cluster().devices()[0].memory;
  const auto note_size = [&](double bytes) {
    const Bytes size(static_cast<std::int64_t>(bytes));
    result.least_too_large = result.too_large == 1 ? size : std::min(result.least_too_large, size);
  };
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (progress && !progress(i, list.size())) {
      result.complete = false;
      break;
    }
    if (list[i].least_memory > memory && !is_plain_device(list[i].words)) {
      ++result.too_large;
      note_size(list[i].least_memory);
    } else if (hopeless(list[i], result.ranked)) {
      ++result.pruned;
    } else {
      ++result.tried;
      try {
        Found found = simulate(list[i], machine, own);
        if (is_plain_device(list[i].words)) {
          result.one_device = found;
        }
        if (static_cast<double>(found.memory.count) > memory) {
          ++result.too_large;
          note_size(static_cast<double>(found.memory.count));
        } else {
          result.ranked.push_back(std::move(found));
        }
      } catch (const Stopped&) {
        result.complete = false;
        break;
      } catch (const Error&) {
        ++result.refused;
      }
    }
  }
  const std::vector<Found> all = result.ranked;
  std::erase_if(result.ranked, [&](const Found& one) {
    return std::any_of(all.begin(), all.end(), [&](const Found& other) { return same_but_recomputing(other, one); });
  });
  std::stable_sort(result.ranked.begin(), result.ranked.end(),
                   [](const Found& a, const Found& b) { return std::pair(a.step, a.memory) < std::pair(b.step, b.memory); });
  for (std::size_t i = 0; i < result.ranked.size(); ++i) {
    if (result.frontier.empty() || result.ranked[i].memory < result.ranked[result.frontier.back()].memory) {
      result.frontier.push_back(i);
    }
  }
  return result;
}

std::string against_one_device(const SearchResult& result) {
  if (!result.one_device || result.ranked.empty()) {
    return "";
  }
  const Found& alone = *result.one_device;
  const Found& best = result.ranked[0];
  if (alone.memory > result.device_memory) {
    return fmt::format("One device cannot hold the job: it needs {} and has {}.", to_text(alone.memory),
                       to_text(result.device_memory));
  }
  const auto several = [](const Found& one) { return one.words.devices != "1"; };
  const auto split = std::find_if(result.ranked.begin(), result.ranked.end(), several);
  if (split == result.ranked.end()) {
    return fmt::format("No split over several devices works; one device takes {}.", to_text(alone.step));
  }
  const double ratio = static_cast<double>(alone.step.count) / static_cast<double>(split->step.count);
  return several(best) && ratio > 1
             ? fmt::format("{} is {:.2f} times as fast as one device, which takes {}.", split->name, ratio, to_text(alone.step))
             : fmt::format("No split beats one device, which takes {}: the fastest of several devices, {}, takes {}.",
                           to_text(alone.step), split->name, to_text(split->step));
}

std::string why_not(const Found& best, const Found& second) {
  struct Part {
    std::string_view name;
    std::int64_t more;
  };
  const std::array<Part, 4> parts{{{"computing", (second.time.busy - best.time.busy).count},
                                   {"exposed communication", (second.time.exposed - best.time.exposed).count},
                                   {"waiting for other devices", (second.time.waiting - best.time.waiting).count},
                                   {"having nothing to do", (second.time.rest() - best.time.rest()).count}}};
  const double step = static_cast<double>(best.step.count);
  std::string text = fmt::format("{} takes {} longer ({} for {})", second.name,
                                 percent(static_cast<double>((second.step - best.step).count) / step), to_text(second.step),
                                 to_text(best.step));
  std::string_view joint = ": of the faster step, ";
  for (const Part& part : parts) {
    const double share = static_cast<double>(part.more) / step;
    if (std::abs(share) >= 0.0005) {  // what is shown as nothing is not named
      text += fmt::format("{}{} {} goes into {}", joint, percent(std::abs(share)), share > 0 ? "more" : "less", part.name);
      joint = ", ";
    }
  }
  return text + " (the mean over devices).";
}

}  // namespace baton::lab
