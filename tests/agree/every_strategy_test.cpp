#include <cstdlib>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>

#include "agree/training.h"
#include "baton/base/error.h"
#include "baton/devices/backends.h"

/// Every strategy with every model: it leaves what one device leaves, or is refused in one sentence. CI trains cases in which any
/// two settings come together; with BATON_FULL=1 in the environment all of them are, with BATON_FULL=3/11 an
/// eleventh (`ctest -L full`, in a build with -DBATON_FULL=ON, runs all eleven).
namespace baton::test {
namespace {

using strategy::Precision;
using strategy::Recompute;

struct Network {
  std::string text;
  Tolerance rounding;
  double rate;
  double narrow = 3e-2;    // how far a loss may be off with 16 bits, relative
  std::int64_t group = 1;  // samples that a micro-batch has a multiple of
};

/// Heads, features and vocabularies that some numbers of devices divide and others do not.
const std::vector<Network>& networks() {
  constexpr Tolerance plain{.loss = 2e-6, .typical = 1e-5, .worst = 1e-4};
  constexpr Tolerance grown{.loss = 2e-4, .typical = 5e-3, .worst = 5e-2};  // norms of a few numbers let roundings grow
  static const std::vector<Network> list{
      {"mlp:7-33-20-9-11-5", plain, 0.1},
      {"gpt:depth=3,heads=4,dim=16,context=9,vocab=23", plain, 0.1},
      {"gpt:depth=4,heads=3,dim=12,context=6,vocab=17", plain, 0.1},
      {"llama:depth=3,heads=4,kv-heads=2,dim=16,hidden=21,context=8,vocab=22", plain, 0.1},
      {"vit:depth=3,heads=2,dim=8,patch=2,image=6,classes=9", plain, 0.1},
      {"mixer:depth=3,dim=8,tokens=9,channels=10,patch=2,image=6,classes=9", plain, 0.1},
      {"cnn:4-6-4,image=9,channels=2,classes=5", plain, 0.05},
      {"resnet:18,image=16,classes=5,width=4,group=4", grown, 0.002, 0.1, 4},
  };
  return list;
}

/// A way of splitting the step, for a number of devices that it takes.
struct Way {
  std::string name;
  std::string strategy;
  strategy::Layout layout = {};
  std::int64_t multiple = 1;                       // the number of devices is a multiple of this
  std::int64_t strategy::Layout::*rest = nullptr;  // what gets the devices that are left

  strategy::Layout layout_on(std::size_t devices) const {
    strategy::Layout own = layout;
    if (rest != nullptr) {
      const auto given = [](std::int64_t count) { return std::max<std::int64_t>(1, count); };
      own.*rest = static_cast<std::int64_t>(devices) / (given(own.dp) * given(own.pp) * given(own.tp));
    }
    return own;
  }
};

const std::vector<Way>& ways() {
  static const std::vector<Way> list = [] {
    std::vector<Way> all;
    for (const strategy::Strategy& one : strategy::strategies()) {
      if (!one.is_by_numbers()) {
        all.push_back({one.name(), one.name()});
      }
    }
    all.push_back({"tensor with sequences", "tensor", {.sp = true}});
    all.push_back({"replicas of pipelines", "product", {.dp = 2, .schedule = "1f1b"}, 4, &strategy::Layout::pp});
    all.push_back({"pipelines that balance work", "gpipe", {.balance = strategy::Balance::work}});
    all.push_back({"replicas of tensors, ZeRO 1", "product", {.dp = 2, .pp = 1, .zero = 1}, 2, &strategy::Layout::tp});
    all.push_back({"replicas of tensors, ZeRO 3", "product", {.pp = 1, .tp = 2, .zero = 3}, 4, &strategy::Layout::dp});
    all.push_back({"all three, ZeRO 2", "product", {.pp = 2, .tp = 2, .zero = 2, .schedule = "1f1b"}, 8, &strategy::Layout::dp});
    return all;
  }();
  return list;
}

/// Reasons for which a split is refused: docs/strategies.md lists them.
bool is_listed(const std::string& sentence) {
  const std::vector<std::string> listed{
      "cannot be divided over",    "cannot be split over", "micro-batches cannot be made of", "takes 4 samples together",
      "--sp divides the sequence", "needs a pipeline",     "sequence parallelism divides",    "does not split the model"};
  return std::any_of(listed.begin(), listed.end(),
                     [&](const std::string& one) { return sentence.find(one) != std::string::npos; }) &&
         sentence.find('\n') == std::string::npos;
}

/// A case by the number of its choice along each axis.
using Choices = std::vector<std::size_t>;
const std::vector<std::size_t>& axes() {
  static const std::vector<std::size_t> sizes{networks().size(), ways().size(), 8, 2, 3, 3, 3, 2};
  return sizes;
}

struct Chosen {
  explicit Chosen(const Choices& c)
      : network(networks()[c[0]]),
        way(ways()[c[1]]),
        devices(static_cast<std::size_t>((static_cast<std::int64_t>(c[2]) / way.multiple + 1) * way.multiple)),
        even(c[3] == 0) {
    one.model = network.text;
    one.strategy = way.strategy;
    one.backend = "cpu";
    one.devices = devices;
    one.layout = way.layout_on(devices);
    one.layout.micro_batches = std::array<std::int64_t, 3>{0, 2, 3}[c[4]];
    one.layout.recompute = std::array{Recompute::none, Recompute::alternate, Recompute::all}[c[5]];
    one.step.precision = std::array{Precision::fp32, Precision::bf16, Precision::fp16}[c[6]];
    one.step.global_batch = network.group > 1 ? (even ? 24 : 20) : (even ? 24 : 13);
    one.step.loss = strategy::Loss::cross_entropy;
    if (one.step.precision == Precision::fp16) {
      one.step.loss_scale = strategy::LossScale{.initial = 256};
    }
    one.step.optimizer = c[7] == 0
                             ? op::Optimizer(op::Sgd{.rate = network.rate, .momentum = 0.5})
                             : op::Optimizer(op::Adam{.rate = 1e-3, .epsilon = 1e-3, .weight_decay = 0.01, .decoupled = true});
  }

  const Network& network;
  const Way& way;
  std::size_t devices;
  bool even;
  Case one;
};

/// What one device leaves in float32.
const Outcome& judge(const Chosen& chosen, bool adam) {
  static std::map<std::tuple<std::string, bool, bool>, Outcome> judged;
  const std::tuple key(chosen.network.text, chosen.even, adam);
  if (const auto found = judged.find(key); found != judged.end()) {
    return found->second;
  }
  Case one = chosen.one;
  one.strategy = "single";
  one.devices = 1;
  one.layout = {};
  one.step.precision = Precision::fp32;
  one.step.loss_scale = std::nullopt;
  return judged.emplace(key, train(one, 2)).first->second;
}

/// The sentence of a refusal; empty: it is none.
std::string refusal_of(const Case& one) {
  try {
    strategy::compile({.model = model_of(one.model),
                       .cluster = cluster_of(one),
                       .strategy = one.strategy,
                       .step = one.step,
                       .layout = one.layout,
                       .target = devices::make_backend(one.backend)->target()});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Whether it was trained.
bool expect_agreement(const Choices& choices) {
  const Chosen chosen(choices);
  if (const std::string why = refusal_of(chosen.one); !why.empty()) {
    EXPECT_TRUE(is_listed(why)) << to_text(chosen.one) << ": " << why;
    return false;
  }
  const Outcome outcome = train(chosen.one, 2);
  const Outcome& expected = judge(chosen, choices[7] == 1);
  if (chosen.one.step.precision == Precision::fp32) {
    EXPECT_TRUE(close(expected, outcome, chosen.network.rounding)) << to_text(chosen.one);
  } else {
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(outcome.losses[i], expected.losses[i], chosen.network.narrow * expected.losses[i]) << to_text(chosen.one);
    }
  }
  return true;
}

/// Cases in which any two choices of different axes come together, found one by one: the best of some that are drawn.
std::vector<Choices> pairs() {
  std::mt19937 random(19);
  std::set<std::array<std::size_t, 4>> left;
  for (std::size_t a = 0; a < axes().size(); ++a) {
    for (std::size_t b = a + 1; b < axes().size(); ++b) {
      for (std::size_t i = 0; i < axes()[a]; ++i) {
        for (std::size_t j = 0; j < axes()[b]; ++j) {
          left.insert({a, i, b, j});
        }
      }
    }
  }
  const auto new_pairs = [&](const Choices& one) {
    std::vector<std::array<std::size_t, 4>> found;
    for (std::size_t a = 0; a < one.size(); ++a) {
      for (std::size_t b = a + 1; b < one.size(); ++b) {
        if (const std::array pair{a, one[a], b, one[b]}; left.contains(pair)) {
          found.push_back(pair);
        }
      }
    }
    return found;
  };
  std::vector<Choices> list;
  while (!left.empty()) {
    Choices best;
    std::vector<std::array<std::size_t, 4>> gained;
    const std::array<std::size_t, 4> wanted = *left.begin();
    for (int draw = 0; draw < 20; ++draw) {
      Choices one;
      for (const std::size_t size : axes()) {
        one.push_back(std::uniform_int_distribution<std::size_t>(0, size - 1)(random));
      }
      one[wanted[0]] = wanted[1];
      one[wanted[2]] = wanted[3];
      if (auto found = new_pairs(one); found.size() > gained.size()) {
        gained = std::move(found);
        best = one;
      }
    }
    for (const auto& pair : gained) {
      left.erase(pair);
    }
    list.push_back(std::move(best));
  }
  return list;
}

/// The part of the full product that BATON_FULL names: 1 is all of it, 3/11 the third of eleven parts.
struct Part {
  std::size_t index = 0;
  std::size_t of = 1;
};

std::optional<Part> part_of_the_product() {
  const char* const full = std::getenv("BATON_FULL");
  if (full == nullptr || *full == '\0') {
    return std::nullopt;
  }
  std::istringstream text(full);
  std::size_t number = 1;
  std::size_t of = 1;
  char slash = '/';
  text >> number;
  if (text >> slash) {
    text >> of;
  }
  if (text.bad() || slash != '/' || number < 1 || of < number) {
    throw std::invalid_argument(std::string("BATON_FULL is 1 or K/N, not ") + full);
  }
  return Part{.index = number - 1, .of = of};
}

TEST(EveryStrategy, LeavesWithEveryModelWhatOneDeviceLeavesOrIsRefusedForAListedReason) {
  std::size_t trained = 0;
  std::size_t refused = 0;
  const auto try_one = [&](const Choices& choices) { ++(expect_agreement(choices) ? trained : refused); };
  if (const std::optional<Part> part = part_of_the_product()) {
    Choices one(axes().size(), 0);
    std::size_t index = 0;
    for (std::size_t axis = 0; axis < axes().size();) {
      if (index++ % part->of == part->index) {
        try_one(one);
      }
      for (axis = 0; axis < axes().size() && ++one[axis] == axes()[axis]; ++axis) {
        one[axis] = 0;
      }
    }
  } else {
    for (const Choices& one : pairs()) {
      try_one(one);
    }
  }
  EXPECT_GT(trained, 2 * refused) << trained << " were trained, " << refused << " refused";
}

/// At sizes that divide evenly there is nothing to refuse.
TEST(EveryStrategy, TakesTransformersAndResnetsAtSizesThatDivideEvenly) {
  for (const std::string model :
       {"gpt:depth=8,heads=8,dim=16,context=8,vocab=16", "llama:depth=8,heads=16,kv-heads=8,dim=32,hidden=24,context=8,vocab=16",
        "resnet:34,image=8,classes=8,width=8,group=1"}) {
    for (const Way& way : ways()) {
      for (const std::size_t devices : {1U, 2U, 4U, 8U}) {
        const bool resnet = model.starts_with("resnet");
        const bool divides = way.strategy == "tensor" || way.layout.dp > 1 || way.layout.pp > 0 || way.layout.tp > 0;
        if (devices % static_cast<std::size_t>(way.multiple) != 0 || (way.layout.sp && (resnet || devices == 1)) ||
            (devices == 1 && (divides || way.layout.balance != strategy::Balance::even))) {
          continue;  // nothing to divide, or no sequence
        }
        Case one{.model = model, .strategy = way.strategy, .backend = "cpu", .devices = devices, .layout = way.layout_on(devices)};
        one.step = {.global_batch = 16, .loss = strategy::Loss::cross_entropy};
        EXPECT_EQ(refusal_of(one), "") << to_text(one);
      }
    }
  }
}

}  // namespace
}  // namespace baton::test
