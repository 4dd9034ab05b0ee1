// SPDX-License-Identifier: Apache-2.0
// Adafactor on the NCCL engine: the numbers of one thread, whenever each stream runs; and what it refuses there.
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/adafactor.hpp>

#include "check_paced_training.hpp"
#include "given_kernels.hpp"
#include "paced_ranks.hpp"
#include "unit/optim/muon_training.hpp"
#include "unit/thrown_message.hpp"

namespace adafactor_test {

namespace {

namespace sk = shardkit;
using muon_training::Mesh;

struct NoProducts {
    static void multiply(const sk::Stream& /*stream*/, const auto& /*product*/) {}
    static void gram(const sk::Stream& /*stream*/, const auto& /*product*/) {}
};

}  // namespace

TEST_CASE("nccl: Adafactor's steps are one thread's, on every policy and pace, by the kernels of its list") {
    const auto make = [](auto& model) { return sk::Adafactor{model, {.learning_rate = 0.1}}; };
    std::vector<float> expected;
    sk::threads::run(Mesh(1, 1, 1), [&](auto& rank) {
        expected = muon_training::train_with(rank, muon_training::policies[3], make,
                                             [](const auto& stream, const auto& work) { stream.submit(work); });
    });
    using Precision = sk::DefaultPrecision<float>;
    constexpr auto sums = sk::nccl::detail::rule_kernels<Precision, sk::rules::AdafactorRule>();
    decltype(sums)::template In<sk::gpu::KernelLaunches>::calls();
    host_functions::Given::all().take();
    paced_ranks::check_training(expected, muon_training::policies, [&](auto& rank, const auto& policy) {
        return muon_training::train_with(rank, policy, make, paced_ranks::submit);
    });
    CHECK(host_functions::given_beside(sk::nccl::detail::group_kernels<Precision>() + sums) == "");
}

TEST_CASE("nccl: Adafactor and Muon refuse a group whose kernels are not in the program") {
    CHECK(paced_ranks::run(Mesh(1, 1, 1), paced_ranks::all_paces[3], {}, [&](auto& rank, const auto&) {
              using List = sk::TensorList<sk::fp16>;
              sk::Sharded<List, sk::FullShard> layer(rank, "layer", List{{"wide", {3, 8}}});
              sk::Model model{layer};
              const std::string_view said =
                  "'layer': no file of this program launches the updates of its fp32 elements (fp16 gathered, fp32 "
                  "reduced) with the optimizer's rule on a device: expected a shardkit::nccl::KernelsFor";
              CHECK(has(thrown_message<sk::UsageError>([&] { const sk::Adafactor adafactor{model}; }), said));
              CHECK(has(thrown_message<sk::UsageError>([&] { const sk::Muon muon{model, NoProducts{}}; }), said));
          }) == "");
}

TEST_CASE("nccl: Adafactor refuses a group that is offloaded, by its path") {
    CHECK(paced_ranks::run(Mesh(1, 1, 1), paced_ranks::all_paces[3], {}, [&](auto& rank, const auto&) {
              using List = sk::TensorList<float>;
              using Layer = sk::Sharded<List, sk::FullShard>;
              typename Layer::Options options{};
              options.offload = sk::Offload::states;
              Layer layer(rank, "layer", List{{"wide", {3, 8}}}, options);
              sk::Model model{layer};
              CHECK(has(thrown_message<std::invalid_argument>([&] { const sk::Adafactor adafactor{model}; }),
                        "'layer' has an Offload, and sums over parameters are added from masters"));
          }) == "");
}

}  // namespace adafactor_test
