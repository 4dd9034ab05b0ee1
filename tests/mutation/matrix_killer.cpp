// SPDX-License-Identifier: Apache-2.0
// The program that every mutant of whole matrices must fail: Muon in fp64 against loops in plain double, where
// matrices are cut over ranks and tp, where ranks hold copies, and where one has them alone.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/policy/dynamic_policy.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/loss_scale.hpp>

namespace sk = shardkit;

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic, sk::dynamic, sk::dynamic>;

struct Tall : sk::Param<"tall", double, 6, 4>, sk::tp::Split<1> {};
struct Wide : sk::Param<"wide", double, 3, 5> {};
using Group = sk::Params<Tall, Wide>;
constexpr int steps = 3;
constexpr int overflowing = 1;
const sk::MuonOptions options[] = {
    {.learning_rate = 0.25, .momentum = 0.75, .weight_decay = 0.5, .epsilon = 1e-7, .scale = sk::MuonScale::jordan},
    {.learning_rate = 0.25, .rule = sk::Momentum::classical, .momentum = 0.5, .scale = sk::MuonScale::moonlight}};

double gradient(int step, std::size_t i) { return std::sin(static_cast<double>((i + 3) * (i + 7)) + step); }
double initial(std::size_t i) { return 1 / static_cast<double>(i + 1); }

using Rows = std::vector<std::vector<double>>;
Rows product(const Rows& a, const Rows& b) {
    Rows c(a.size(), std::vector<double>(b[0].size()));
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < b[0].size(); ++j) {
            for (std::size_t k = 0; k < b.size(); ++k) { c[i][j] += a[i][k] * b[k][j]; }
        }
    }
    return c;
}
Rows transposed(const Rows& a) {
    Rows t(a[0].size(), std::vector<double>(a.size()));
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < a[0].size(); ++j) { t[j][i] = a[i][j]; }
    }
    return t;
}
Rows orthogonal(Rows x) {
    const bool tall = x.size() > x[0].size();
    if (tall) { x = transposed(x); }
    double squares = 0;
    for (const auto& row : x) {
        for (const double e : row) { squares += e * e; }
    }
    for (auto& row : x) {
        for (double& e : row) { e /= std::sqrt(squares); }
    }
    for (int step = 0; step < 5; ++step) {
        Rows g = product(x, transposed(x));
        const Rows gg = product(g, g);
        for (std::size_t i = 0; i < g.size(); ++i) {
            for (std::size_t j = 0; j < g.size(); ++j) { g[i][j] = -4.7750 * g[i][j] + 2.0315 * gg[i][j]; }
        }
        const Rows next = product(g, x);
        for (std::size_t i = 0; i < x.size(); ++i) {
            for (std::size_t j = 0; j < x[0].size(); ++j) { x[i][j] = 3.4445 * x[i][j] + next[i][j]; }
        }
    }
    return tall ? transposed(x) : x;
}

std::vector<double> by_hand(const sk::MuonOptions& o, std::size_t rows, std::size_t columns) {
    const std::size_t numel = rows * columns;
    std::vector<double> p(numel), m(numel);
    for (std::size_t i = 0; i < numel; ++i) { p[i] = initial(i); }
    const double factor = o.scale == sk::MuonScale::moonlight
                              ? 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)))
                              : std::sqrt(std::max(1.0, static_cast<double>(rows) / static_cast<double>(columns)));
    for (int step = 0; step < steps; ++step) {
        if (step == overflowing) { continue; }
        Rows direction(rows, std::vector<double>(columns));
        for (std::size_t i = 0; i < numel; ++i) {
            const double g = gradient(step, i);
            m[i] = o.momentum * m[i] + (1 - o.momentum) * g;
            direction[i / columns][i % columns] =
                o.rule == sk::Momentum::nesterov ? o.momentum * m[i] + (1 - o.momentum) * g : m[i];
        }
        const Rows moved = orthogonal(direction);
        for (std::size_t i = 0; i < numel; ++i) {
            p[i] -= o.learning_rate * (o.weight_decay * p[i] + factor * moved[i / columns][i % columns]);
        }
    }
    return p;
}

void check(const Mesh& mesh, const sk::DynamicPolicy& policy, const sk::MuonOptions& o) {
    sk::threads::run(mesh, [&](auto& rank) {
        using Layer = sk::Sharded<Group, sk::DynamicPolicy>;
        Layer layer{rank, "layer", {}, typename Layer::Options{policy}};
        layer.initialize([](auto, auto, std::uint64_t i) { return initial(i); });
        sk::Model model{layer};
        sk::Muon optimizer{model, o};
        sk::LossScale scale(rank, {.initial = 8});
        const auto& grid = rank.grid();
        const std::size_t tp = grid.extent("tp");
        for (int step = 0; step < steps; ++step) {
            const double factor = step == overflowing ? std::numeric_limits<double>::infinity() : scale.value();
            sk::Accumulation accumulation{model};
            auto handle = accumulation.gradients(layer);
            if (grid.coordinate("dp", rank.rank()) == 0) {
                const std::size_t own = 4 / tp;
                for (std::size_t i = 0; i < 6 * own; ++i) {
                    const std::size_t column = grid.coordinate("tp", rank.rank()) * own + i % own;
                    handle[Tall{}][i] = factor * gradient(step, i / own * 4 + column);
                }
                for (std::size_t i = 0; i < 15; ++i) { handle[Wide{}][i] = factor * gradient(step, i); }
            }
            accumulation.add(std::move(handle));
            optimizer.step(sk::reduce(std::move(accumulation), sk::sum, scale));
        }
        std::vector<double> tall(24), wide(15);
        layer.read_full(Tall{}, tall);
        layer.read_full(Wide{}, wide);
        const auto compare = [&](const std::vector<double>& given, const std::vector<double>& expected) {
            for (std::size_t i = 0; i < given.size(); ++i) {
                if (std::abs(given[i] - expected[i]) <= 1e-11) { continue; }
                std::printf("rank %zu of %s: element %zu is %.17g, expected %.17g\n", rank.rank(),
                            mesh.describe().c_str(), i, given[i], expected[i]);
                std::exit(1);
            }
        };
        compare(tall, by_hand(o, 6, 4));
        compare(wide, by_hand(o, 3, 5));
    });
}

}  // namespace

int main() {
    for (const sk::MuonOptions& o : options) {
        check(Mesh(1, 1, 1), sk::DynamicPolicy(sk::FullShard{}), o);
        check(Mesh(3, 1, 1), sk::DynamicPolicy(sk::FullShard{}), o);
        check(Mesh(2, 1, 1), sk::DynamicPolicy(sk::NoShard{}), o);
        check(Mesh(4, 1, 1), sk::DynamicPolicy(sk::HybridShard<2>{}), o);
        check(Mesh(2, 2, 1), sk::DynamicPolicy(sk::FullShard{}), o);
    }
}
