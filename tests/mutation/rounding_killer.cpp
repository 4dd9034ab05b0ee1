// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of stochastic rounding must fail: the rounding alone over all draws, the draws
// against a Philox written here, and the bits that training gives on several meshes against a plain loop with both.
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/optim/sgd.hpp>
#include <shardkit/policy/policies.hpp>

namespace sk = shardkit;

namespace {

[[noreturn]] void fail(const char* what, double given, double expected) {
    std::printf("%s: %.17g, expected %.17g\n", what, given, expected);
    std::exit(1);
}
void expect(const char* what, double given, double expected) {
    if (!(given == expected)) { fail(what, given, expected); }
}

/// Random123's Philox4x32-10, the key's rounds counted up to.
std::array<std::uint32_t, 4> philox(std::uint64_t low, std::uint64_t high, std::uint64_t key) {
    std::uint32_t x[4] = {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32U),
                          static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32U)};
    for (std::uint32_t round = 0; round < 10; ++round) {
        const std::uint32_t first = static_cast<std::uint32_t>(key) + round * 0x9E3779B9U;
        const std::uint32_t second = static_cast<std::uint32_t>(key >> 32U) + round * 0xBB67AE85U;
        const std::uint64_t a = 0xD2511F53ULL * x[0];
        const std::uint64_t b = 0xCD9E8D57ULL * x[2];
        x[0] = static_cast<std::uint32_t>(b >> 32U) ^ x[1] ^ first;
        x[1] = static_cast<std::uint32_t>(b);
        x[2] = static_cast<std::uint32_t>(a >> 32U) ^ x[3] ^ second;
        x[3] = static_cast<std::uint32_t>(a);
    }
    return {x[0], x[1], x[2], x[3]};
}
std::uint32_t draw(std::uint64_t seed, std::uint64_t step, std::uint64_t element) {
    const std::uint32_t word = philox(element / 8, step, seed)[element % 8 / 2];
    return element % 2 == 0 ? word & 0xffffU : word >> 16U;
}
/// FNV-1a of the seed, the group's path and its length, a byte after the other.
std::uint64_t seed_of(std::uint64_t seed, std::string_view path) {
    std::uint64_t hash = 14695981039346656037U;
    const auto byte = [&](std::uint64_t value) { hash = (hash ^ value) * 1099511628211U; };
    const auto number = [&](std::uint64_t value) {
        for (unsigned i = 0; i < 8; ++i) { byte(value >> 8 * i & 0xffU); }
    };
    number(seed);
    for (const char c : path) { byte(static_cast<unsigned char>(c)); }
    number(path.size());
    return hash;
}

template <class T>
double mean(float value) {
    double sum = 0;
    for (std::uint32_t d = 0; d < 65536; ++d) {
        sum += static_cast<double>(static_cast<float>(sk::rules::round_stochastically<T>(value, d)));
    }
    return sum / 65536;
}

void check_rounding() {
    // Representable with all bits that a draw decides: the means are exact.
    for (const float value : {1 + 0x1.2p-9F, -3 - 0x1p-12F, 0x1.01p-100F}) {
        expect("the mean in bf16", mean<sk::bf16>(value), static_cast<double>(value));
    }
    for (const float value : {1 + 0x1p-13F, -1000.625F, 0x1.002p-14F, 0x1.8p-25F, -0x1.1p-20F}) {
        expect("the mean in fp16", mean<sk::fp16>(value), static_cast<double>(value));
    }
}

void check_draws() {
    for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{0x500000002}}) {
        for (const std::uint64_t step : {std::uint64_t{3}, std::uint64_t{0x700000004}}) {
            for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5} << 36U}) {
                for (std::uint64_t e = first; e < first + 20; ++e) {
                    expect("a draw", sk::detail::PackDraws<1>(seed, step, e)[0], draw(seed, step, e));
                }
                for (std::uint64_t begin = first; begin < first + 8; ++begin) {
                    const sk::detail::PackDraws<8> pack(seed, step, begin);
                    for (std::size_t i = 0; i < 8; ++i) {
                        expect("a draw of a pack", pack[i], draw(seed, step, begin + i));
                    }
                }
            }
        }
    }
}

struct Weight : sk::Param<"weight", sk::bf16, 20, 30>, sk::tp::Split<1> {};
struct Bias : sk::Param<"bias", sk::bf16, 7> {};
using Group = sk::Params<Weight, Bias>;
constexpr std::size_t weights = 600;  // more than an update converts at once
constexpr std::size_t numel = weights + 7;
constexpr std::uint64_t seed = 0x900000008;
constexpr int steps = 3;
constexpr float gradient = 0x1.5p-10F;

float initial(std::size_t i) { return 1 + 0x1p-6F * static_cast<float>(i % 100); }

/// What every mesh trains to.
std::vector<float> by_hand(std::string_view path) {
    std::vector<float> values;
    for (std::size_t i = 0; i < numel; ++i) {
        float value = static_cast<float>(sk::bf16(initial(i)));
        for (std::uint64_t step = 1; step <= steps; ++step) {
            const auto bits = std::bit_cast<std::uint32_t>(value - gradient);
            value = std::bit_cast<float>((bits + draw(seed_of(seed, path), step, i)) & 0xffff0000U);
        }
        values.push_back(value);
    }
    return values;
}

template <class Policy, class Mesh>
void check_training(Mesh mesh, const char* what) {
    sk::threads::run(mesh, [&](auto& rank) {
        using Layer = sk::Sharded<Group, Policy>;
        const typename Layer::Options options{.master = sk::MasterWeights::none,
                                              .stochastic_rounding = {{.seed = seed}}};
        Layer one{rank, "one", {}, options};
        Layer two{rank, "two", {}, options};
        for (Layer* const layer : {&one, &two}) {
            layer->initialize([](auto, std::string_view name, std::uint64_t i) {
                return static_cast<double>(initial(name == "bias" ? weights + i : i));
            });
        }
        sk::Model model{one, two};
        sk::SGD optimizer{model, {.learning_rate = 1}};
        for (int step = 0; step < steps; ++step) {
            sk::Accumulation accumulation{model};
            for (Layer* const layer : {&one, &two}) {
                auto handle = accumulation.gradients(*layer);
                const auto fill = [](auto view) {
                    for (auto& g : view) { g = sk::bf16(gradient); }
                };
                fill(handle[Weight{}]);
                fill(handle[Bias{}]);
                accumulation.add(std::move(handle));
            }
            optimizer.step(sk::reduce(std::move(accumulation), sk::mean));
        }
        for (Layer* const layer : {&one, &two}) {
            std::vector<float> values(numel);
            layer->read_full(Weight{}, std::span<float>(values).first(weights));
            layer->read_full(Bias{}, std::span<float>(values).subspan(weights));
            const std::vector<float> expected = by_hand(layer->path());
            for (std::size_t i = 0; i < numel; ++i) { expect(what, values[i], expected[i]); }
        }
    });
}

}  // namespace

int main() {
    check_rounding();
    check_draws();
    check_training<sk::NoShard>(sk::DeviceMesh<1>{}, "one rank");
    check_training<sk::FullShard>(sk::DeviceMesh<4>{}, "four data ranks");
    check_training<sk::FullShard>(sk::DeviceMesh<2, 2>{}, "two data ranks and two of tp");
    return 0;
}
