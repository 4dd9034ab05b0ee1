// SPDX-License-Identifier: Apache-2.0
// Gathers of 8-bit codes on the NCCL engine: the bits of one thread, whenever each stream runs.
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/step/accumulation.hpp>
#include <shardkit/step/model.hpp>

#include "captured_step.hpp"
#include "check_paced_training.hpp"
#include "paced_ranks.hpp"
#include "unit/sharded/coded_training.hpp"

namespace coded_gathers_test {

namespace sk = shardkit;

namespace {

template <class Code>
void check_training() {
    paced_ranks::check_training(coded_training::expected<Code>(), coded_training::policies,
                                [](auto& rank, const auto& policy) {
                                    return coded_training::train<Code>(rank, policy, paced_ranks::submit);
                                });
}

}  // namespace

TEST_CASE("nccl: steps with gathers of codes are one thread's to the bit, on every policy and pace") {
    check_training<shardkit::e4m3>();
    check_training<shardkit::block_int8>();
}

namespace {

/// Trains, at first by plain steps, and evaluates and loads in between; then by launches of a captured step.
/// @returns what windows show behind each launch
template <class Code, class Rank, class Repeat>
std::vector<float> train_in_graphs(Rank& rank, const sk::DynamicPolicy& policy, bool loads, const Repeat& repeat) {
    coded_training::Layer<Code> layer(rank, "layer", coded_training::tensors(), {policy});
    layer.initialize([](auto, auto, auto i) { return coded_training::initial(i); });
    host_functions::launch_updates<sk::rules::AdamWRule, coded_training::Precision<Code>>();
    sk::Model model{layer};
    sk::AdamW optimizer{model, {.learning_rate = 0.02}};
    const auto step = [&] {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        {
            const auto window = layer.unshard();
            for (const auto& [name, size] : coded_training::sizes) {
                float* const to = gradients.view(name).data();
                const auto shown = window.view(name);
                const Code* const codes = shown.codes().data();
                const float* const scales = shown.scales().data();
                paced_ranks::submit(rank.compute_stream(), [to, codes, scales, n = size] {
                    for (std::size_t i = 0; i < n; ++i) {
                        to[i] =
                            sk::detail::CodeFormat<Code>::decode(codes[i], scales[sk::detail::scale_number<Code>(i)]);
                    }
                });
            }
        }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
    };
    std::vector<float> values;
    const auto show = [&] {
        std::vector<float> whole(coded_training::sizes[0].second);
        layer.read_full("weight", whole);
        values.insert(values.end(), whole.begin(), whole.end());
    };
    step();
    if (loads) { layer.load("weight", std::vector<float>(coded_training::sizes[0].second, 5)); }
    if (!loads) { show(); }
    const auto again = repeat(step);
    for (int launch = 0; launch < 3; ++launch) {
        if (launch == 1) { layer.load("bias", std::vector<float>(coded_training::sizes[1].second, 300)); }
        again();
        again();  // of masters whose codes nobody has made since
        show();
    }
    return values;
}

template <class Code>
void check_graphs() {
    for (const sk::DynamicPolicy& policy : coded_training::policies) {
        for (const bool loads : {false, true}) {
            CAPTURE(std::string(policy.name()));
            CAPTURE(loads);
            std::vector<float> expected;
            std::vector<float> given;
            const auto run = [&](std::vector<float>& values, bool captures) {
                CHECK(paced_ranks::run(coded_training::Mesh(2, 1, 1), paced_ranks::one_lazy[0], {},
                                       [&](auto& rank, const auto& streams) {
                                           const auto own = train_in_graphs<Code>(
                                               rank, policy, loads, [&](const auto& step) -> std::function<void()> {
                                                   if (!captures) { return step; }
                                                   const auto graph =
                                                       std::make_shared<step_trainer::CapturedStep>(streams, step);
                                                   return [graph] { graph->launch(); };
                                               });
                                           if (rank.rank() == 0) { values = own; }
                                       }) == "");
            };
            run(expected, false);
            run(given, true);
            CHECK(given == expected);
        }
    }
}

}  // namespace

TEST_CASE("nccl: launches of a captured step make the codes of the masters that each finds") {
    check_graphs<shardkit::e4m3>();
    check_graphs<shardkit::block_int8>();
}

}  // namespace coded_gathers_test
