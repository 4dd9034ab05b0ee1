// SPDX-License-Identifier: Apache-2.0
// The time of AdamW's update of one thread for each choice of precision, states and rounding:
// docs/benchmarks_kernels.md has the figures. update_times [ELEMENTS [TURNS]] g++ -std=c++20 -O3 -march=native
// -Iinclude benchmarks/kernels/update_times.cpp -pthread -o update_times
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/shardkit.hpp>

namespace sk = shardkit;

/// Nanoseconds of this process's CPU for each of n elements.
template <class F>
double nanoseconds(std::size_t n, const F& timed) {
    const std::clock_t begin = std::clock();
    timed();
    return static_cast<double>(std::clock() - begin) * (1e9 / CLOCKS_PER_SEC) / static_cast<double>(n);
}

/// Turns of one group of n elements: each prepares gradients, and takes the time of AdamW's update.
template <class Precision, sk::StateFormat Format = sk::StateFormat::full, class Rank>
std::function<double()> update(Rank& rank, std::size_t n, sk::MasterWeights master = sk::MasterWeights::kept,
                               std::optional<sk::StochasticRounding> rounding = {}) {
    using Element = std::conditional_t<Precision::gathers_codes, float, typename Precision::Gather>;
    struct Group {
        sk::Sharded<sk::TensorList<Element>, sk::NoShard, Precision> layer;
        sk::Model model{layer};
        sk::AdamW optimizer{model, sk::states_in<Format>};
    };
    sk::ShardedOptions<sk::TensorList<Element>, sk::NoShard> options;
    options.master = master;
    options.stochastic_rounding = rounding;
    const std::shared_ptr<Group> group(new Group{{rank, "layer", {{"weight", {n}}}, options}});
    group->layer.initialize([](auto, auto, auto i) { return 0.01 * static_cast<double>(i % 31) - 0.15; });
    return [=] {
        sk::Accumulation accumulation{group->model};
        auto gradients = accumulation.gradients(group->layer);
        for (std::size_t i = 0; i < n; ++i) {
            gradients.view(0).data()[i] = 1e-3F * static_cast<float>(i % 17) - 8e-3F;
        }
        accumulation.add(std::move(gradients));
        auto reduced = sk::reduce(std::move(accumulation), sk::sum);
        return nanoseconds(n, [&] { group->optimizer.step(std::move(reduced)); });
    };
}

int main(int count, char** arguments) {
    const std::size_t n = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1 << 20;
    const std::size_t turns = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 3;
    sk::self::run(sk::DeviceMesh<1>{}, [&](auto& rank) {
        using enum sk::MasterWeights;
        using enum sk::StateFormat;
        using Full = sk::Precision<float>;
        using Short = sk::Precision<sk::bf16, float>;
        std::vector<float> from(n, 1), to(n);
        struct Row {
            const char* name;
            std::function<double()> turn;
            std::vector<double> times{};
        };
        std::vector<Row> rows{
            {"copy of an fp32 number",
             [&] { return nanoseconds(n, [&] { std::memcpy(to.data(), from.data(), 4 * n); }); }},
            {"fp32", update<Full>(rank, n)},
            {"fp32, states in bf16", update<Full, bf16>(rank, n)},
            {"fp32, states in blocks", update<Full, block8>(rank, n)},
            {"bf16, fp32 masters", update<Short>(rank, n)},
            {"bf16, no masters", update<Short>(rank, n, none)},
            {"bf16, no masters, stochastic", update<Short>(rank, n, none, sk::StochasticRounding{42})},
            {"e4m3, fp32 masters", update<sk::Precision<sk::e4m3, float>>(rank, n)},
            {"block_int8, fp32 masters", update<sk::Precision<sk::block_int8, float>>(rank, n)}};
        for (std::size_t turn = 0; turn < turns; ++turn) {
            for (Row& row : rows) { row.times.push_back(row.turn()); }
        }
        for (Row& row : rows) {
            std::sort(row.times.begin(), row.times.end());
            std::printf("%-30s %5.2f ns, from %5.2f to %5.2f\n", row.name, row.times[turns / 2], row.times.front(),
                        row.times.back());
        }
    });
}
