// SPDX-License-Identifier: Apache-2.0
// A rule of whole matrices: each row of the gradient is divided by the root of a running mean of its sum of squares.
// g++ -std=c++20 -Iinclude examples/row_rule.cpp -pthread -o example && ./example
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <shardkit/muon.hpp>
#include <shardkit/rules.hpp>
#include <shardkit/shardkit.hpp>
#include <string_view>
namespace sk = shardkit;

struct RowOptions {
    double learning_rate = 0.1;
    double weight_decay = 0;
};

template <class A>
struct RowApply {
    A learning_rate;
    template <class V>
    constexpr void operator()(V& parameter, V moved) const {
        parameter = parameter - learning_rate * moved;
    }
};
template <class A>
struct RowUpdate {
    sk::rules::Factor<A> gradient_scale;
    A learning_rate;
    template <class V>
    constexpr void operator()(V& direction, V gradient) const {
        direction = gradient_scale * gradient;
    }
    constexpr RowApply<A> apply(sk::rules::MatrixExtents) const { return {learning_rate}; }
};

// The running mean, kept unless the step is skipped, and the row over its root.
template <class A>
struct DivideRow {
    const std::uint32_t* skip;
    std::size_t columns;
    A* kept;
    A* values;
    constexpr void operator()(std::uint64_t row) const {
        A squares = 0;
        for (std::size_t i = 0; i < columns; ++i) {
            squares += values[row * columns + i] * values[row * columns + i];
        }
        const A mean = (kept[row] + squares) / 2;
        if (*skip == 0) { kept[row] = mean; }
        for (std::size_t i = 0; i < columns; ++i) { values[row * columns + i] /= std::sqrt(mean); }
    }
};

struct RowRule : sk::rules::CountsSteps {
    using Options = RowOptions;
    static constexpr std::string_view name = "Rows";
    static constexpr std::array<sk::rules::OptionRange<Options>, 1> ranges{
        {{"learning_rate", &Options::learning_rate, sk::rules::not_negative}}};
    static constexpr std::array<std::string_view, 0> state_names{};
    static constexpr std::size_t state_count(const Options&) { return 0; }
    template <class A>
    using Update = RowUpdate<A>;
    template <class A>
    static constexpr Update<A> update(const Progress&, const Options& o, double scale) {
        return {sk::rules::Factor<A>(scale), A(o.learning_rate)};
    }

    template <class A>
    static constexpr std::size_t scratch(sk::rules::MatrixExtents) {
        return 0;
    }
    static constexpr std::size_t kept(sk::rules::MatrixExtents e) { return e.rows; }
    static constexpr std::uint64_t cost(sk::rules::MatrixExtents e) { return e.numel(); }
    template <class Products, class A>
    static void transform(const sk::Stream& stream, const Products&,
                          const sk::rules::WholeMatrix<A, RowUpdate<A>>& whole) {
        sk::host::AnyKernels::for_each_index(
            stream, whole.extents.rows,
            DivideRow<A>{whole.skip, whole.extents.columns, whole.kept.data(), whole.values.data()});
    }
};

struct Weight : sk::Param<"weight", float, 2, 4> {};

int main() {
    sk::threads::run(sk::DeviceMesh<3>{}, [](auto& rank) {
        sk::Sharded<Weight, sk::FullShard> layer{rank, "layer"};
        sk::Model model{layer};
        sk::rules::MatrixOptimizer<RowRule> optimizer{model, sk::HostProducts{}, {.learning_rate = 0.5}};
        for (int step = 0; step < 2; ++step) {
            sk::Accumulation accumulation{model};
            auto gradients = accumulation.gradients(layer);
            for (std::size_t i = 0; i < 8; ++i) { gradients[Weight{}][i] = i < 4 ? 1.0F : 100.0F; }
            accumulation.add(std::move(gradients));
            optimizer.step(std::move(accumulation));
        }
        const auto window = layer.unshard();
        if (rank.rank() == 0) { std::printf("%.4f %.4f\n", window[Weight{}][0], window[Weight{}][7]); }
    });
}
