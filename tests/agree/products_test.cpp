#include "agree/training.h"
#include "baton/devices/backends.h"
#include "baton/op/optimizer.h"

/// Replicas × stages × divided tensors, with ZeRO, schedules and recomputation, against the reference on one device.
namespace baton::test {
namespace {

using enum strategy::Recompute;

const std::vector<Product>& products() {
  static const std::vector<Product> list{{2, 2, 1, 0, "naive", 1},
                                         {2, 2, 1, 0, "gpipe", 4},
                                         {2, 2, 1, 0, "1f1b", 4},
                                         {2, 2, 1, 0, "interleaved", 4},
                                         {2, 2, 1, 0, "looped-bfs", 4},
                                         {2, 2, 1, 0, "zb-h1", 4},
                                         {2, 2, 1, 0, "zb-h2", 4},
                                         {2, 2, 1, 0, "zb-v", 4},
                                         {2, 2, 1, 1, "naive", 1},
                                         {2, 2, 1, 1, "gpipe", 4},
                                         {2, 2, 1, 1, "1f1b", 4},
                                         {2, 2, 1, 1, "zb-v", 4},
                                         {2, 2, 1, 2, "naive", 2},
                                         {2, 2, 1, 2, "gpipe", 4},
                                         {2, 2, 1, 2, "1f1b", 4},
                                         {2, 2, 1, 2, "zb-h1", 4},
                                         {2, 2, 1, 3, "naive", 2},
                                         {2, 2, 1, 3, "gpipe", 4},
                                         {2, 2, 1, 3, "1f1b", 4},
                                         {2, 2, 1, 3, "interleaved", 4},
                                         {2, 2, 1, 3, "zb-h1", 4},
                                         {2, 1, 2, 0, "naive", 1},
                                         {2, 1, 2, 1, "naive", 2},
                                         {2, 1, 2, 2, "naive", 2},
                                         {2, 1, 2, 3, "naive", 2},
                                         {3, 1, 2, 1, "naive", 1},
                                         {2, 1, 3, 3, "naive", 1},
                                         {1, 2, 2, 0, "naive", 1},
                                         {1, 2, 2, 0, "gpipe", 3},
                                         {1, 2, 2, 0, "1f1b", 4},
                                         {1, 2, 2, 0, "zb-h1", 4},
                                         {1, 3, 2, 0, "1f1b", 5},
                                         {1, 2, 3, 0, "1f1b", 4},
                                         {1, 2, 4, 0, "1f1b", 4},
                                         {1, 4, 2, 0, "1f1b", 6},
                                         {2, 2, 2, 0, "1f1b", 4},
                                         {2, 2, 2, 1, "1f1b", 4},
                                         {2, 2, 2, 2, "1f1b", 3},
                                         {2, 2, 2, 3, "1f1b", 4},
                                         {2, 2, 2, 1, "zb-h1", 4},
                                         {2, 2, 2, 3, "gpipe", 2},
                                         {4, 2, 1, 3, "1f1b", 2},
                                         {2, 4, 1, 2, "interleaved", 4},
                                         {2, 4, 1, 1, "zb-v", 4},
                                         {8, 1, 1, 3, "naive", 1},
                                         {8, 1, 1, 2, "naive", 1},
                                         {4, 1, 2, 1, "naive", 2},
                                         {1, 8, 1, 0, "1f1b", 8},
                                         {2, 2, 1, 0, "1f1b", 4, all},
                                         {2, 2, 1, 3, "1f1b", 4, alternate},
                                         {2, 2, 2, 1, "gpipe", 4, all},
                                         {1, 2, 2, 0, "zb-h1", 4, all},
                                         {2, 1, 2, 2, "naive", 2, alternate},
                                         {2, 2, 1, 1, "interleaved-zb", 4}};
  return list;
}

std::string name_of(const testing::TestParamInfo<std::tuple<std::size_t, std::string>>& info) {
  const Product& product = products()[std::get<0>(info.param)];
  std::string name = "dp" + std::to_string(product.dp) + "_pp" + std::to_string(product.pp) + "_tp" + std::to_string(product.tp) +
                     "_zero" + std::to_string(product.zero) + "_" + product.schedule + "_" + std::to_string(product.micro_batches) +
                     "_" + strategy::recompute_names()[static_cast<std::size_t>(product.recompute)] + "_" + std::get<1>(info.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Products : public testing::TestWithParam<std::tuple<std::size_t, std::string>> {};

TEST_P(Products, TrainAsOneDeviceDoes) {
  const Product& product = products()[std::get<0>(GetParam())];
  for (const char* optimizer : {"sgd", "adam"}) {
    Case one{.model = "mlp:11-40-24-66-20-30-64-13-28-9",
             .step = {.global_batch = 18, .optimizer = op::optimizer_by_name(optimizer)}};
    const bool adam = std::holds_alternative<op::Adam>(one.step.optimizer);
    if (!adam) {
      std::get<op::Sgd>(one.step.optimizer).rate = 1;
    } else {
      std::get<op::Adam>(one.step.optimizer).rate = 0.002;
    }
    const Outcome expected = train(one);
    one.strategy = "product";
    one.backend = std::get<1>(GetParam());
    one.devices = product.devices();
    one.layout = layout_of(product);
    one.layout.bucket = Bytes(3000);
    // As in the agreement of plain strategies: rounding compared with how far training went.
    EXPECT_TRUE(close(
        expected, train(one),
        adam ? Tolerance{.loss = 5e-6, .typical = 2e-4, .worst = 2e-2} : Tolerance{.loss = 5e-7, .typical = 1e-6, .worst = 1e-5}))
        << to_text(one);
  }
}

/// Rounding in 16 bits after each op leaves 2⁻⁹ of a value for bf16 and 2⁻¹² for fp16; other ways of splitting round sums in
/// other places, so losses of ten steps stay within a few of those of each other.
TEST(MixedProducts, TrainAsASingleDeviceInThatPrecisionDoes) {
  for (const auto& [precision, tolerance] : {std::pair{strategy::Precision::bf16, 2e-2}, {strategy::Precision::fp16, 3e-3}}) {
    for (const std::size_t number : {1U, 2U, 7U, 10U, 14U, 18U, 24U, 35U, 38U, 48U}) {
      const Product& product = products()[number];
      Case one{
          .model = "mlp:11-40-24-66-20-30-64-13-28-9", .backend = "cpu", .step = {.global_batch = 18, .optimizer = op::Adam{}}};
      one.step.precision = precision;
      if (precision == strategy::Precision::fp16) {
        one.step.loss_scale = strategy::LossScale{.initial = 1024};
      }
      const Outcome expected = train(one);
      one.strategy = "product";
      one.devices = product.devices();
      one.layout = layout_of(product);
      const Outcome outcome = train(one);
      for (std::size_t i = 0; i < outcome.losses.size(); ++i) {
        EXPECT_NEAR(outcome.losses[i] / expected.losses[i], 1, tolerance) << to_text(one) << ", step " << i;
      }
      EXPECT_LT(outcome.losses.back(), outcome.losses.front()) << to_text(one);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(UpToEightDevices, Products,
                         testing::Combine(testing::Range(std::size_t{0}, products().size()),
                                          testing::ValuesIn(devices::backend_names())),
                         name_of);

}  // namespace
}  // namespace baton::test
