// SPDX-License-Identifier: Apache-2.0
#include <shardkit/step/model.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/run.hpp>
#include <shardkit/checkpoint/load.hpp>
#include <shardkit/checkpoint/save.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/muon/muon.hpp>
#include <shardkit/optim/adamw.hpp>
#include <shardkit/policy/policies.hpp>

#include "temporary_folder.hpp"

// A model whose groups have several precisions.

namespace sk = shardkit;

namespace several_precisions_test {

namespace {

using Mesh = sk::DeviceMesh<sk::dynamic>;
using Norms = sk::Sharded<sk::TensorList<float>, sk::FullShard>;
using Weights = sk::Sharded<sk::TensorList<sk::bf16>, sk::FullShard>;
constexpr double limit = 3;

struct Values {
    std::vector<float> norms, weights;
    std::vector<double> lengths;  // of each step's gradients

    bool operator==(const Values&) const = default;
};

/// Norms in fp32 and weights in bf16 with masters, trained as one model, or each as a model of its own.
struct Trainer {
    Norms norms;
    Weights weights;
    sk::Model model{norms, weights};
    sk::AdamW optimizer;

    template <class Rank>
    explicit Trainer(Rank& rank)
        : norms(rank, "norms", {{"gain", {7}}}),
          weights(rank, "weights", {{"weight", {11, 3}}}),
          optimizer(model, {.learning_rate = 0.1}) {
        model.initialize([](auto, auto, std::uint64_t i) { return 1 + static_cast<double>(i) / 8; });
    }

    /// Adds this rank's share of gradients whose sum over the ranks is the same on every mesh, exactly.
    template <class Layer>
    static void add(sk::Accumulation& accumulation, Layer& layer, std::size_t rank, std::size_t ranks, int step) {
        auto gradients = accumulation.gradients(layer);
        for (std::size_t p = 0; p < layer.parameters().size(); ++p) {
            const auto view = gradients.view(p);
            for (std::size_t i = 0; i < view.size(); ++i) {
                const auto share = static_cast<double>(rank == 0 ? 7 - ranks : 1);
                const double sign = (static_cast<int>(i) + step) % 2 == 0 ? 1 : -1;
                view.data()[i] = static_cast<std::remove_cvref_t<decltype(view.data()[i])>>(
                    static_cast<float>(sign * share * static_cast<double>(i % 5 + 1) / 8));
            }
        }
        accumulation.add(std::move(gradients));
    }
    template <class Rank>
    void step(Rank& rank, int number, Values& values, double max_norm = limit) {
        sk::Accumulation accumulation{model};
        add(accumulation, weights, rank.rank(), rank.world_size(), number);
        add(accumulation, norms, rank.rank(), rank.world_size(), number);
        const auto norm = optimizer.step(std::move(accumulation), {.divisor = sk::sum, .max_norm = max_norm});
        values.lengths.push_back(norm.value());
    }
    void read(Values& values) {
        values.norms.resize(7);
        values.weights.resize(33);
        norms.read_full(0, values.norms);
        weights.read_full(0, values.weights);
    }
};

/// A matrix and a bias in each of three arithmetics, two of them in one, for a Muon.
struct Matrices {
    template <class E>
    using Layer = sk::Sharded<sk::TensorList<E>, sk::FullShard>;
    Layer<float> singles;
    Layer<double> doubles;
    Layer<sk::bf16> halves;
    sk::Model model{doubles, halves, singles};

    template <class Rank>
    explicit Matrices(Rank& rank)
        : singles(rank, "singles", {{"matrix", {4, 6}}, {"bias", {5}}}),
          doubles(rank, "doubles", {{"matrix", {4, 6}}, {"bias", {5}}}),
          halves(rank, "halves", {{"matrix", {4, 6}}, {"bias", {5}}}) {
        model.initialize([](auto, auto, std::uint64_t i) { return 1 + static_cast<double>(i * i % 7) / 8; });
    }
    template <class Rank, class... Layers>
    static void train(Rank& rank, int first, int last, double max_norm, sk::Muon& optimizer, Layers&... layers) {
        for (int number = first; number < last; ++number) {
            sk::Accumulation accumulation{optimizer.model()};
            (Trainer::add(accumulation, layers, rank.rank(), rank.world_size(), number), ...);
            optimizer.step(std::move(accumulation), {.divisor = sk::sum, .max_norm = max_norm});
        }
    }
    std::vector<double> values() {
        std::vector<double> all(3 * 29);
        const auto read = [](auto& layer, std::span<double> to) {
            layer.read_full(0, to.first(24));
            layer.read_full(1, to.subspan(24));
        };
        read(singles, std::span(all).first(29));
        read(doubles, std::span(all).subspan(29, 29));
        read(halves, std::span(all).subspan(58));
        return all;
    }
};

}  // namespace

TEST_CASE("a model of fp32 and bf16 groups trains, clips, saves and resumes with the same bits on every mesh") {
    Values alone;
    sk::threads::run(Mesh(1, 1), [&](auto& rank) {
        Trainer trainer(rank);
        for (int number = 0; number < 4; ++number) { trainer.step(rank, number, alone); }
        trainer.read(alone);
    });
    REQUIRE(alone.lengths[0] > limit);

    const temporary_folder::Folder folder;
    Values resumed;
    const auto run = [&](std::size_t ranks, int first, int last) {
        sk::threads::run(Mesh(ranks, 1), [&](auto& rank) {
            Values own;
            Trainer trainer(rank);
            const sk::checkpoint::State state{trainer.model, trainer.optimizer};
            if (first > 0) { sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder.path())->path, state); }
            for (int number = first; number < last; ++number) { trainer.step(rank, number, own); }
            sk::checkpoint::save(rank, folder.path(), static_cast<std::uint64_t>(last), state);
            trainer.read(own);
            if (rank.rank() != 0) { return; }
            own.lengths.insert(own.lengths.begin(), resumed.lengths.begin(), resumed.lengths.end());
            resumed = own;
        });
    };
    run(3, 0, 2);
    run(2, 2, 4);
    CHECK(resumed == alone);
}

TEST_CASE("a model of fp32 and bf16 groups trains as two models of one precision each") {
    Values together, apart;
    sk::threads::run(Mesh(2, 1), [&](auto& rank) {
        Values own;
        Trainer trainer(rank);
        trainer.step(rank, 0, own, 1e9);
        trainer.read(own);
        if (rank.rank() == 0) { together = own; }
    });
    sk::threads::run(Mesh(2, 1), [&](auto& rank) {
        Values own;
        Trainer trainer(rank);
        double squares = 0;
        const auto train = [&](auto& layer) {
            const sk::Model model{layer};
            sk::AdamW optimizer{model, {.learning_rate = 0.1}};
            sk::Accumulation accumulation{model};
            Trainer::add(accumulation, layer, rank.rank(), rank.world_size(), 0);
            auto gradients = sk::reduce(std::move(accumulation), sk::sum);
            squares += std::pow(sk::global_norm(gradients).value(), 2);
            optimizer.step(std::move(gradients));
        };
        train(trainer.norms);
        train(trainer.weights);
        own.lengths.push_back(std::sqrt(squares));
        trainer.read(own);
        if (rank.rank() == 0) { apart = own; }
    });
    double expected = 0;
    for (const std::size_t numel : {std::size_t{7}, std::size_t{33}}) {
        for (std::size_t i = 0; i < numel; ++i) { expected += std::pow(6 * static_cast<double>(i % 5 + 1) / 8, 2); }
    }
    CHECK(together.lengths[0] == doctest::Approx(std::sqrt(expected)).epsilon(1e-12));
    CHECK(apart.lengths[0] == doctest::Approx(std::sqrt(expected)).epsilon(1e-12));
    CHECK(together.norms == apart.norms);
    CHECK(together.weights == apart.weights);
}

TEST_CASE("a Muon over fp32, bf16 and fp64 groups trains each as a Muon of its own, and resumes on another mesh") {
    std::vector<double> together, apart, alone, resumed;
    sk::threads::run(Mesh(2, 1), [&](auto& rank) {
        Matrices one(rank), three(rank);
        sk::Muon optimizer{one.model};
        Matrices::train(rank, 0, 3, sk::unlimited, optimizer, one.singles, one.doubles, one.halves);
        const auto train = [&](auto& layer) {
            sk::Muon own{sk::Model{layer}};
            Matrices::train(rank, 0, 3, sk::unlimited, own, layer);
        };
        train(three.singles);
        train(three.doubles);
        train(three.halves);
        auto as_one = one.values();
        auto as_three = three.values();
        if (rank.rank() == 0) { together = std::move(as_one), apart = std::move(as_three); }
    });
    CHECK(together == apart);
    double most = 0;
    for (std::size_t i = 0; i < 29; ++i) { most = std::max(most, std::abs(together[i] - together[29 + i])); }
    CHECK(most > 0);  // fp64 is not rounded to fp32
    CHECK(most < 1e-5);

    const temporary_folder::Folder folder;
    const auto run = [&](std::size_t ranks, int first, int last, std::vector<double>& values) {
        sk::threads::run(Mesh(ranks, 1), [&](auto& rank) {
            Matrices trainer(rank);
            sk::Muon optimizer{trainer.model};
            const sk::checkpoint::State state{trainer.model, optimizer};
            if (first > 0) { sk::checkpoint::load(rank, sk::checkpoint::latest(rank, folder.path())->path, state); }
            Matrices::train(rank, first, last, limit, optimizer, trainer.singles, trainer.doubles, trainer.halves);
            if (first == 0 && last == 2) { sk::checkpoint::save(rank, folder.path(), 2, state); }
            auto own = trainer.values();
            if (rank.rank() == 0) { values = std::move(own); }
        });
    };
    run(1, 0, 4, alone);
    run(3, 0, 2, resumed);
    run(2, 2, 4, resumed);
    CHECK(resumed == alone);
}

}  // namespace several_precisions_test
