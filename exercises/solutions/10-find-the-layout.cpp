#include <algorithm>
#include <limits>

#include "exercise.h"

// One layout of each product dp × pp × tp is tried first. The other tries go to neighbours of what is best so far.
namespace {

struct Known {
  Layout layout;
  double score = 0;  // seconds; more if it does not fit
  bool fits = false;
  double rank = 0;
};

class Search {
 public:
  Search(const Job& job, const TryOut& try_out) : job_(job), try_out_(try_out) {}

  Layout run() {
    for (int pp = 1; pp <= job_.devices; pp *= 2) {
      for (int tp = 1; pp * tp <= job_.devices; tp *= 2) {
        const int dp = job_.devices / pp / tp;
        if (job_.heads % tp == 0 && pp <= job_.blocks && dp <= job_.batch) {
          consider({dp, pp, tp, dp > 1 ? 1 : 0, std::min(pp, largest_count(dp)), false});
        }
      }
    }
    while (tries_ < most_tries && consider_a_neighbour()) {
    }
    const auto best = std::min_element(known_.begin(), known_.end(), [](const Known& a, const Known& b) {
      return std::pair(!a.fits, a.score) < std::pair(!b.fits, b.score);
    });
    return best->layout;
  }

 private:
  int largest_count(int dp) const {
    int count = 1;
    while (2 * count <= std::min(8, job_.batch / dp)) {
      count *= 2;
    }
    return count;
  }

  void consider(const Layout& layout) {
    if (tries_ == most_tries) {
      return;
    }
    ++tries_;
    const Tried tried = try_out_(layout);
    Known one{layout, std::numeric_limits<double>::infinity(), false};
    if (tried.refused.empty()) {
      one.fits = tried.memory <= job_.memory;
      const double excess = tried.memory / job_.memory;  // what saves memory costs time: more, the more has to be saved
      one.score = tried.seconds * (one.fits ? 1 : excess > 2 ? excess / 2 + 0.1 : 1.05);
    }
    known_.push_back(one);
  }

  bool is_known(const Layout& layout) const {
    return std::any_of(known_.begin(), known_.end(), [&](const Known& one) { return one.layout == layout; });
  }

  // How many layouts of the same product are known.
  std::ptrdiff_t tries_of(const Layout& layout) const {
    return std::count_if(known_.begin(), known_.end(), [&](const Known& one) {
      return one.layout.dp == layout.dp && one.layout.pp == layout.pp && one.layout.tp == layout.tp;
    });
  }

  // Of the best that has neighbours left; products that were tried often come later.
  bool consider_a_neighbour() {
    for (Known& one : known_) {
      one.rank = one.score * (1 + 0.04 * static_cast<double>(tries_of(one.layout)));
    }
    std::sort(known_.begin(), known_.end(), [](const Known& a, const Known& b) { return a.rank < b.rank; });
    for (const Known& one : known_) {
      for (const Layout& next : neighbours(one)) {
        if (!is_known(next)) {
          consider(next);
          return true;
        }
      }
    }
    return false;
  }

  std::vector<Layout> neighbours(const Known& known) const {
    std::vector<Layout> list;
    const auto add = [&](auto change) {
      Layout layout = known.layout;
      change(layout);
      const bool sound = layout.micro_batches >= 1 && layout.micro_batches <= largest_count(layout.dp) && layout.zero >= 0 &&
                         layout.zero <= (layout.dp > 1 ? 3 : 0);
      if (sound && !(layout == known.layout)) {
        list.push_back(layout);
      }
    };
    if (!known.fits) {  // what saves memory
      add([](Layout& one) { one.recompute = true; });
      add([](Layout& one) { one.micro_batches *= 2; });
      add([](Layout& one) { one.zero = 2; });
      add([](Layout& one) { one.zero = 3; });
      add([](Layout& one) {
        one.zero = 2;
        one.recompute = true;
      });
      add([](Layout& one) {
        one.zero = 3;
        one.micro_batches /= 2;
      });
      return list;
    }
    add([](Layout& one) { one.recompute = false; });
    add([](Layout& one) { one.micro_batches /= 2; });
    add([](Layout& one) { one.zero = 0; });
    add([](Layout& one) { one.micro_batches *= 2; });
    add([](Layout& one) { one.zero -= 1; });
    add([](Layout& one) { one.zero += 1; });
    add([](Layout& one) {
      one.recompute = true;
      one.micro_batches /= 2;
    });
    return list;
  }

  const Job& job_;
  const TryOut& try_out_;
  std::vector<Known> known_;
  int tries_ = 0;
};

}  // namespace

Layout find_layout(const Job& job, const TryOut& try_out) { return Search(job, try_out).run(); }
