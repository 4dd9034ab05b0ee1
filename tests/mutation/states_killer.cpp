// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of stored states and split masters must fail: codes and halves by their definition,
// and the bits that training gives on two meshes.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/block8.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/kernels/state_storage.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>

namespace sk = shardkit;
using sk::Block8;

namespace {

void expect(const char* what, double given, double low, double high) {
    if (given >= low && given <= high) { return; }
    std::printf("%s: %.17g, expected %.17g to %.17g\n", what, given, low, high);
    std::exit(1);
}
void expect(const char* what, double given, double expected) { expect(what, given, expected, expected); }

void check_codes() {
    for (const float number : {300.0F, -300.0F, 0.01F}) {
        double mean = 0;
        for (std::uint32_t draw = 0; draw < 1U << 19U; ++draw) {
            const std::uint32_t code = Block8::encode<false>(number, Block8::inverse(1), draw) & 0xffU;
            mean += static_cast<double>(Block8::decode<false>(code, 1.0F)) / (1U << 19U);
        }
        expect("mean of a number's codes", mean, static_cast<double>(number) - 1e-4,
               static_cast<double>(number) + 1e-4);
    }
    expect("code of a small square", Block8::encode<true>(1e-9F, 1.0F, 7U) & 0xffU, 1);
    expect("code of no square", Block8::encode<true>(0.0F, 1.0F, 0x3ffffU) & 0xffU, 0);
    expect("scale of 494", static_cast<double>(Block8::scale(494)), 1);
    expect("scale of more", static_cast<double>(Block8::scale(494.5F)), 2);
    expect("scale of nothing", static_cast<double>(Block8::scale(0)), 0x1p-103);
    if (!std::isnan(Block8::scale(std::numeric_limits<float>::infinity()))) { expect("scale of infinity", 0, 1); }
}

void check_halves() {
    for (const std::uint32_t word : {0x3f80'0000U, 0x3f80'7fffU, 0x3f80'8001U, 0xbf81'ffffU}) {
        const auto number = std::bit_cast<float>(word);
        const std::uint16_t upper = sk::detail::SplitFloat::upper(number);
        const float again = sk::detail::SplitFloat::joined(upper, sk::detail::SplitFloat::lower(number));
        expect("joined halves", again, number);
        const auto shown = std::bit_cast<float>(std::uint32_t{upper} << 16U);
        expect("distance of the upper half", std::fabs(shown - number), 0, 0x1p-8);
        expect("upper half", shown, std::bit_cast<float>((word + 0x8000U) & 0xffff'0000U));
    }
}

void check_draws() {
    const sk::detail::StateDraws one(1, 1, 0);
    expect("draws of seeds", one(5) != sk::detail::StateDraws(2, 1, 0)(5) ? 1 : 0, 1);
    expect("draws of steps", one(5) != sk::detail::StateDraws(1, 2, 0)(5) ? 1 : 0, 1);
    expect("draws of pairs", one(5) != sk::detail::StateDraws(1, 1, 1)(5) ? 1 : 0, 1);
    expect("draws beyond 2^32", one(5) != one(5 + (std::uint64_t{1} << 32U)) ? 1 : 0, 1);
    expect("the first state's draw", sk::detail::StateDraws::of_state(0x1234'5678U, 0, 16), 0x5678);
    expect("the second state's draw", sk::detail::StateDraws::of_state(0x1234'5678U, 1, 16), 0x1234);
}

struct Weight : sk::Param<"weight", float, 70> {};
struct Bias : sk::Param<"bias", float, 40> {};
using Net = sk::Params<Weight, Bias>;
using Values = std::map<std::string, float>;

/// The parameters after some steps whose gradients are the same in two layers, on rank 0 alone.
template <std::size_t Ranks, sk::StateFormat Format>
Values trained() {
    Values all;
    std::mutex mutex;
    sk::threads::run(sk::DeviceMesh<Ranks>{}, [&](auto& rank) {
        std::vector<sk::Sharded<Net, sk::FullShard>> layers;
        for (const char* path : {"a", "b"}) { layers.emplace_back(rank, path); }
        sk::Model model{layers};
        sk::AdamW optimizer{model, sk::states_in<Format>, {.learning_rate = 0.1}};
        for (int step = 0; step < 4; ++step) {
            sk::Accumulation accumulation{model};
            for (auto& layer : layers) {
                auto gradients = accumulation.gradients(layer);
                for (std::size_t p = 0; p < 2 && rank.rank() == 0; ++p) {
                    auto view = gradients.view(p);
                    for (std::size_t i = 0; i < view.size(); ++i) {
                        view.data()[i] = std::sin(static_cast<float>(i % 32) + static_cast<float>(step));
                    }
                }
                accumulation.add(std::move(gradients));
            }
            optimizer.step(sk::reduce(std::move(accumulation), sk::divide_by(1)));
        }
        const std::lock_guard lock(mutex);
        for (auto& layer : layers) {
            sk::read_shards(layer, [&](auto run) {
                for (std::size_t i = 0; i < run.values.size(); ++i) {
                    all[layer.path() + std::string(run.name) + std::to_string(run.range.begin + i)] = run.values[i];
                }
            });
        }
    });
    return all;
}

template <sk::StateFormat Format>
void check_training() {
    const Values one = trained<1, Format>();
    expect("parameters on one and on three ranks", one == trained<3, Format>() ? 1 : 0, 1);
    std::size_t between_groups = 0;
    std::size_t within = 0;
    for (std::size_t i = 0; i < 32; ++i) {
        const auto value = [&](const char* name, std::size_t number) {
            return one.at(name + std::to_string(number));
        };
        between_groups += value("aweight", i) != value("bweight", i) ? 1U : 0U;
        within += value("aweight", i) != value("aweight", i + 32) ? 1U : 0U;
    }
    expect("elements that two groups round differently", static_cast<double>(between_groups), 16, 32);
    expect("elements that differ from equal ones behind them", static_cast<double>(within), 16, 32);
}

}  // namespace

int main() {
    check_codes();
    check_halves();
    check_draws();
    check_training<sk::StateFormat::bf16>();
    check_training<sk::StateFormat::block8>();
}
