// SPDX-License-Identifier: Apache-2.0
#include "experts_training.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/core/bf16.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/param/tensor_list.hpp>

#include "../thrown_message.hpp"
#include "test_size.hpp"

namespace sk = shardkit;

namespace experts_test {

namespace {

using experts_training::for_each_policy;
using experts_training::Mesh;
using experts_training::train;
using experts_training::Trained;

/// A policy of a user: sharded states of replicated parameters, whose gradients are all-reduced.
struct Mine : sk::NoShard {
    static constexpr std::string_view name = "mine";
    static constexpr sk::Placement optimizer = sk::Placement::sharded;
};

}  // namespace

TEST_CASE("experts: the bits of one rank for every ep, policy and tp, on 2, 4 and 8 ranks") {
    const sk::Slices cut{8};  // of which a rank takes several
    const sk::DynamicPolicy replicated(sk::TreeSums<sk::NoShard>{cut});
    for (const std::size_t tp : {1U, 2U}) {
        const Trained expected = train(Mesh{sk::DeviceMesh{1, tp}, 1}, replicated, replicated);
        CHECK(expected.norms[0] > 1);
        for (const std::size_t dp : {1U, 2U, 4U}) {
            for (const std::size_t ep : {1U, 2U, 4U}) {
                if (ep > dp || (test_size::reduced() && tp * dp == 8)) { continue; }
                for_each_policy(cut, dp, [&](const sk::DynamicPolicy& policy) {
                    const auto values = policy.values(dp);
                    if (values.shard_group % ep != 0) { return; }
                    CAPTURE(tp);
                    CAPTURE(dp);
                    CAPTURE(ep);
                    CAPTURE(policy.name());
                    CHECK(train(Mesh{sk::DeviceMesh{dp, tp}, ep}, policy, policy) == expected);
                });
            }
        }
    }
}

TEST_CASE("experts: of 16 bits with gradients of 32, the bits of one rank for every ep and policy") {
    // `adopted`: gradients lie in memory of the user's own, with room for so many of them; 0 if they do not.
    const auto train = [](std::size_t dp, std::size_t ep, const sk::DynamicPolicy& policy, std::size_t adopted = 0) {
        std::vector<sk::ValuesHash> hashes;
        sk::threads::run(Mesh{sk::DeviceMesh{dp, 1}, ep}, [&](auto& rank) {
            using Layer = sk::Sharded<sk::TensorList<sk::bf16>, sk::DynamicPolicy, sk::Precision<sk::bf16, float>>;
            const sk::TensorList<sk::bf16> list{{"up", {4, 6, 5}, {.experts = true}}};
            typename Layer::Options options{policy};
            std::vector<sk::bf16> parameters;
            std::vector<float> of_user;
            const auto make = [&] {
                if (adopted == 0) { return Layer(rank, "moe", list, options); }
                options.packing = sk::Packing::exact;
                parameters.resize(Layer::buffer_numel(rank, "moe", list, options));
                of_user.resize(adopted * parameters.size());
                return Layer::adopt(rank, "moe", list, {parameters, of_user}, options);
            };
            Layer layer = make();
            layer.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(i % 13) / 8; });
            sk::Model model{layer};
            sk::AdamW optimizer{model, {.learning_rate = 0.125}};
            const sk::SliceOrder order = sk::slice_order(model);
            const auto& part = sk::spi::group(layer).geometry().parameters[0].part;
            for (std::size_t step = 0; step < 2; ++step) {
                sk::Accumulation accumulation{model, order.microbatches()};
                for (std::size_t m = 0; m < order.microbatches(); ++m) {
                    auto gradients = accumulation.gradients(layer);
                    const std::size_t together = ep / gradients.sources();
                    for (std::size_t source = 0; source < ep; source += together) {
                        experts_training::AddSlices add{gradients.of_source(source / together, "up").data(), part, 0,
                                                        step};
                        for (; add.count < together; ++add.count) {
                            const std::size_t of = rank.rank() / ep * ep + source + add.count;
                            add.slices.at(add.count) = sk::slice_of(order, of, m);
                        }
                        add();
                    }
                    accumulation.add(std::move(gradients));
                }
                optimizer.step(std::move(accumulation));
            }
            const auto mine = sk::hash_values(optimizer);
            if (rank.rank() == 0) { hashes = mine; }
        });
        return hashes;
    };
    const sk::Slices cut{8};
    const auto expected = train(1, 1, sk::DynamicPolicy(sk::TreeSums<sk::NoShard>{cut}));
    CHECK(!expected.empty());
    for (const std::size_t ep : {1U, 2U, 4U}) {
        for_each_policy(cut, 4, [&](const sk::DynamicPolicy& policy) {
            CAPTURE(ep);
            CAPTURE(policy.name());
            if (policy.shard_group(4) % ep == 0) { CHECK(train(4, ep, policy) == expected); }
        });
    }
    const sk::DynamicPolicy whole(sk::TreeSums<sk::NoShard>{cut});
    CHECK(train(4, 2, whole, 2) == expected);
    CHECK(has(thrown_message<std::invalid_argument>([&] { train(4, 2, whole, 1); }),
              "'moe': adopted gradients hold 60 elements, expected 120"));
}

TEST_CASE("experts: gradients that are kept apart are refused as a whole, and so is one that there is not") {
    sk::threads::run(Mesh{sk::DeviceMesh{4, 1}, 2}, [&](auto& rank) {
        const sk::DynamicPolicy policy(sk::TreeSums<sk::NoShard>{sk::Slices{8}});
        experts_training::Training training(rank, policy, policy);
        sk::Accumulation accumulation{training.model, 2};
        auto of_dense = accumulation.gradients(training.dense);
        CHECK(of_dense.sources() == 1);
        auto of_experts = accumulation.gradients(training.experts);
        CHECK(of_experts.sources() == 2);
        const auto whole = thrown_message<sk::UsageError>([&] { static_cast<void>(of_experts.view("up")); });
        CHECK(has(whole, "'experts': each rank that shares the experts has gradients of its own"));
        CHECK(has(whole, "expected gradients.of_source(source, parameter)"));
        CHECK_INVALID_ARGUMENT(of_experts.of_source(2, "up"),
                               "Gradients::of_source: source 2 given, expected one below 2");
    });
}

TEST_CASE("experts: policies of their own, and a user's, beside another one of the dense groups") {
    const sk::Slices cut{8};
    const sk::DynamicPolicy dense(sk::TreeSums<sk::NoShard>{cut});
    const Trained expected = train(Mesh{sk::DeviceMesh{1, 1}, 1}, dense, dense);
    for (const std::size_t ep : {1U, 2U, 4U}) {
        CAPTURE(ep);
        const Mesh mesh{sk::DeviceMesh{8, 1}, ep};
        CHECK(train(mesh, dense, sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{cut})) == expected);
        CHECK(train(mesh, sk::DynamicPolicy(sk::TreeSums<sk::FullShard>{cut}),
                    sk::DynamicPolicy(sk::TreeSums<Mine>{cut})) == expected);
    }
}

namespace {

/// What SGD makes of zeros where each token of each rank of dp x cp gives the gradient 1 to every element.
template <class AnyMesh>
void check_mean(const AnyMesh& mesh, const sk::DynamicPolicy& policy, std::size_t microbatches) {
    sk::threads::run(mesh, [&](auto& rank) {
        using Layer = sk::Sharded<experts_training::Experts, sk::DynamicPolicy>;
        Layer layer(rank, "experts", {}, {policy});
        sk::Model model{layer};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        const std::size_t data_ranks = mesh.dp() * mesh.cp();
        for (const bool by_number : {false, true}) {
            sk::Accumulation accumulation{model, microbatches};
            for (std::size_t m = 0; m < microbatches; ++m) {
                auto gradients = accumulation.gradients(layer);
                // The tokens of ep ranks, one of each.
                for (std::size_t p = 0; p < 3; ++p) {
                    for (float& g : gradients.view(p)) { g += static_cast<float>(mesh.ep()); }
                }
                accumulation.add(std::move(gradients));
            }
            const auto divisor = by_number ? sk::divide_by(static_cast<double>(data_ranks)) : sk::mean;
            optimizer.step(std::move(accumulation), {.divisor = divisor});
        }
        std::vector<float> up(4 * 6 * 5);
        layer.read_full("up", up);
        for (const float value : up) { CHECK(value == -2.0F * static_cast<float>(microbatches)); }
        if (rank.rank() == 0) { CHECK(rank.traffic().total(sk::Verb::all_to_all).calls == 0); }
    });
}

}  // namespace

TEST_CASE("experts: the mean is over dp x cp, not over ep_dp, whatever ep, cp and the microbatches") {
    const sk::DynamicPolicy policies[] = {sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardOptimizer{}),
                                          sk::DynamicPolicy(sk::FullShard{}),
                                          sk::DynamicPolicy(sk::HybridShard<2>{})};
    using Dynamic = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;
    for (const auto& policy : policies) {
        CAPTURE(policy.name());
        check_mean(sk::ExpertMesh{Dynamic{4, 1, 1}, 2}, policy, 1);
        check_mean(sk::ExpertMesh{Dynamic{4, 1, 1}, 2}, policy, 3);
        check_mean(sk::ExpertMesh{Dynamic{2, 1, 2}, 2}, policy, 2);
        // One rank has each expert: nothing is reduced, and the divisor stays.
        if (policy.shard_group(4) == 4) { check_mean(sk::ExpertMesh{Dynamic{4, 1, 1}, 4}, policy, 3); }
        check_mean(sk::ExpertMesh{Dynamic{2, 1, 2}, 4}, policy, 1);
        check_mean(sk::ExpertMesh{Dynamic{2, 2, 2}, 2}, policy, 1);
        check_mean(sk::ExpertMesh{sk::DeviceMesh<4, 1, 2, sk::RankOrder<sk::Cp, sk::Tp, sk::Dp>>{}, 4}, policy, 2);
    }
    // More ranks than elements of a rank's experts.
    check_mean(sk::ExpertMesh{Dynamic{6, 1, 1}, 2}, policies[2], 1);
}

TEST_CASE("experts: two of them on six ranks, fewer than ep times edp, also in replicas") {
    struct Case {
        std::size_t ep;
        sk::DynamicPolicy policy;
    };
    for (const Case& each :
         {Case{2, sk::DynamicPolicy(sk::NoShard{})}, Case{2, sk::DynamicPolicy(sk::FullShard{})},
          Case{2, sk::DynamicPolicy(sk::ShardOptimizer{})}, Case{2, sk::DynamicPolicy(sk::HybridShard<2>{})},
          Case{1, sk::DynamicPolicy(sk::HybridOptimizer<2>{})}}) {
        CAPTURE(each.policy.name());
        sk::threads::run(Mesh{sk::DeviceMesh{6, 1}, each.ep}, [&](auto& rank) {
            sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy> layer(
                rank, "moe", {{"up", {2, 3}, {.experts = true}}, {"bias", {2}, {.experts = true}}}, {each.policy});
            layer.initialize([](auto, auto, std::uint64_t i) { return static_cast<double>(100 * i); });
            sk::Model model{layer};
            sk::SGD optimizer{model, {.learning_rate = 1}};
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            const std::size_t expert = rank.rank() % each.ep;  // the first that it has
            for (std::size_t i = 0; i < 6 / each.ep; ++i) {
                gradients.view("up").data()[i] = static_cast<float>(6 * (3 * expert + i) + rank.rank() / each.ep);
            }
            accumulation.add(std::move(gradients));
            const double norm = optimizer.step(std::move(accumulation), {.divisor = sk::divide_by(1)}).value();
            std::vector<float> up(6);
            layer.read_full("up", up);
            const auto copies = 6 / each.ep;
            double squares = 0;
            for (std::size_t i = 0; i < 6; ++i) {
                const auto sum = static_cast<double>(copies * 6 * i + copies * (copies - 1) / 2);
                CHECK(up[i] == static_cast<float>(100 * i) - static_cast<float>(sum));
                squares += sum * sum;
            }
            CHECK(norm == std::sqrt(squares));
        });
    }
}

TEST_CASE("experts: what cannot be is refused, with both sides") {
    CHECK_INVALID_ARGUMENT((sk::ExpertMesh{sk::DeviceMesh{4}, 3}),
                           "ExpertMesh: ep = 3 on dp = 4 x cp = 1, expected a number that divides 4 and is a factor "
                           "or a multiple of cp");
    CHECK_INVALID_ARGUMENT((sk::ExpertMesh{sk::DeviceMesh{3, 1, 2}, 3}),
                           "ExpertMesh: ep = 3 on dp = 3 x cp = 2, expected a number that divides 6 and is a factor "
                           "or a multiple of cp");
    const auto refused = [](const Mesh& mesh, const sk::DynamicPolicy& policy, std::size_t experts) {
        return thrown_message<std::invalid_argument>([&] {
            sk::threads::run(mesh, [&](auto& rank) {
                sk::Sharded<sk::TensorList<float>, sk::DynamicPolicy> layer(
                    rank, "moe", {{"up", {experts, 4}, {.experts = true}}}, {policy});
            });
        });
    };
    CHECK(
        has(refused(Mesh{sk::DeviceMesh{4, 1}, 4}, sk::DynamicPolicy(sk::FullShard{}), 6),
            "'moe' parameter 'up' of shape [6, 4] is a stack of 6 experts over ep = 4, expected a number of experts "
            "that 4 divides"));
    CHECK(has(refused(Mesh{sk::DeviceMesh{4, 1}, 4}, sk::DynamicPolicy(sk::HybridShard<2>{}), 4),
              "'moe': policy hybrid_shard with shard groups of 2 of dp = 4 x cp = 1, whose ranks ep = 4 does not "
              "divide"));
    CHECK(has(thrown_message<std::invalid_argument>([&] {
                  sk::threads::run(Mesh{sk::DeviceMesh{2, 1}, 2}, [&](auto& rank) {
                      const sk::DynamicPolicy policy(sk::TreeSums<sk::FullShard>{sk::Slices{8}});
                      sk::Sharded<sk::TensorList<sk::bf16>, sk::DynamicPolicy> layer(
                          rank, "moe", {{"up", {4, 4}, {.experts = true}}}, {policy});
                  });
              }),
              "'moe': policy 'full_shard' with 8 slices, gradients of 2 bytes and ep = 2, expected gradients of the "
              "sums' 4 bytes"));
    CHECK(has(thrown_message<std::invalid_argument>([&] {
                  sk::threads::run(Mesh{sk::DeviceMesh{2, 1}, 2}, [&](auto& rank) {
                      sk::Sharded<sk::TensorList<float>, sk::NoShard> layer(rank, "moe",
                                                                            {{"up", {4, 5, 3}, {.experts = true}}});
                      sk::Model model{layer};
                      sk::AdamW optimizer{model, sk::states_in<sk::StateFormat::block8>};
                  });
              }),
              "'moe.up' is split over ep into experts' parts of 30 elements"));
    sk::threads::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        using Layer = sk::Sharded<sk::TensorList<float>, sk::NoShard>;
        const auto made = [&](sk::TensorList<float> list) {
            return thrown_message<std::invalid_argument>([&] { Layer layer(rank, "moe", std::move(list)); });
        };
        CHECK(has(made({{"up", {4, 2}, {.experts = true}}, {"norm", {4}}}),
                  "'moe': some tensors are ep::Split and some are not, expected a group of their own"));
        CHECK(has(made({{"up", {4, 2}, {.tp = sk::tp::Split<0>::placement, .experts = true}}}),
                  "'moe' parameter 'up': tp splits dimension 0, along which experts are stacked"));
    });
}

TEST_CASE("two losses with a divisor each in one backward pass, which ranks compare") {
    const auto train = [](auto divisor_of) {
        return thrown_message<sk::CommError>([&] {
            sk::threads::run(sk::DeviceMesh<2>{}, [&](auto& rank) {
                sk::Sharded<sk::TensorList<double>, sk::FullShard> layer(rank, "router", {{"w", {64}}});
                sk::Model model{layer};
                sk::SGD optimizer{model, {.learning_rate = 1}};
                for (int step = 0; step < 2; ++step) {
                    const sk::Divisor divisor = divisor_of(rank.rank());
                    sk::Accumulation accumulation{model, 2};
                    for (int m = 0; m < 2; ++m) {
                        auto gradients = accumulation.gradients(layer);
                        // 5 tokens' losses of gradient 3, and one of the router of gradient 7.
                        for (double& g : gradients.view("w")) { g += 5 * 3 + 7 * divisor.factor(); }
                        accumulation.add(std::move(gradients));
                    }
                    optimizer.step(std::move(accumulation), {.divisor = divisor});
                }
                std::vector<double> values(64);
                layer.read_full("w", values);
                for (const double value : values) { CHECK(value == -2.0 * (3 + 7)); }
            });
        });
    };
    CHECK(train([](std::size_t) { return sk::divide_by(20).beside(4); }) == "nothing was thrown");
    const std::string apart = train([](std::size_t rank) { return sk::divide_by(20).beside(rank == 0 ? 4 : 2); });
    CHECK(has(apart, "with second divisor 4 at "));
    CHECK(has(apart, "with second divisor 2 at "));
    CHECK(sk::divide_by(8).factor() == 1);
    CHECK_INVALID_ARGUMENT(sk::mean.beside(2),
                           "Divisor::beside: of mean, expected divide_by(n): what both losses are divided by");
    CHECK_INVALID_ARGUMENT(sk::divide_by(2).beside(0),
                           "Divisor::beside: 0 given, expected a number from 1e-30 to 1e+30");
}

TEST_CASE("experts: a rank without tokens adds zeros, and a rank that forgets it is told of the group") {
    const auto train = [](bool forgets) {
        return thrown_message<sk::UsageError>([&] {
            sk::threads::run(sk::ExpertMesh<sk::DeviceMesh<4>, 2>{}, [&](auto& rank) {
                sk::Sharded<experts_training::Experts, sk::FullShard> layer(rank, "moe");
                sk::Model model{layer};
                sk::SGD optimizer{model, {.learning_rate = 1}};
                sk::Accumulation accumulation{model};
                if (rank.rank() < 2) {  // the ranks of one copy of all experts
                    auto gradients = accumulation.gradients(layer);
                    for (float& g : gradients.view("up")) { g = 4; }
                    accumulation.add(std::move(gradients));
                } else if (!forgets) {
                    accumulation.add_zero(layer);
                } else {
                    optimizer.step(std::move(accumulation));
                    return;
                }
                optimizer.step(std::move(accumulation));
                std::vector<float> up(4 * 6 * 5);
                layer.read_full("up", up);
                for (const float value : up) { CHECK(value == -1.0F); }  // the mean over four data ranks
            });
        });
    };
    CHECK(train(false) == "nothing was thrown");
    CHECK(has(train(true), "'moe': reduce() before any gradient was added; call add, add_zero or skip"));
}

}  // namespace experts_test
