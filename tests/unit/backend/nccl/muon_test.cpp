// SPDX-License-Identifier: Apache-2.0
// Muon on the NCCL engine: the bits of one thread, whenever each stream runs.
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/optim/matrix_products.hpp>

#include "check_paced_training.hpp"
#include "given_kernels.hpp"
#include "paced_ranks.hpp"
#include "unit/optim/muon_training.hpp"
#include "unit/thrown_message.hpp"

namespace muon_test {

namespace {

namespace sk = shardkit;
using muon_training::Mesh;

/// A host's products in the order of a GPU's stream; how cuBLAS is called, cublas_products_test.cpp says.
template <class Products>
struct Launched {
    template <class Product>
    static void multiply(const sk::Stream& stream, const Product& product) {
        Products::multiply(host_functions::LaunchedStream(stream), product);
    }
    template <class Product>
    static void gram(const sk::Stream& stream, const Product& product) {
        Products::gram(host_functions::LaunchedStream(stream), product);
    }
};
using LaunchedProducts = Launched<sk::HostProducts>;

/// Products whose sums are their first terms: of matrices that are large only to fill batches.
struct FirstTerms {
    template <class Stream, class A>
    static void multiply(const Stream& stream, const sk::rules::MatrixProduct<A>& p) {
        stream.submit([p] {
            for (std::size_t i = 0; i < p.rows; ++i) {
                for (std::size_t j = 0; j < p.columns; ++j) {
                    add(p.alpha * p.left[i * p.inner] * p.right[j], p.beta, p.out[i * p.columns + j]);
                }
            }
        });
    }
    template <class Stream, class A>
    static void gram(const Stream& stream, const sk::rules::GramProduct<A>& p) {
        stream.submit([p] {
            for (std::size_t i = 0; i < p.rows; ++i) {
                for (std::size_t j = 0; j <= i; ++j) {
                    add(p.alpha * p.matrix[i * p.columns] * p.matrix[j * p.columns], p.beta, p.out[i * p.rows + j]);
                }
            }
        });
    }

  private:
    template <class A>
    static void add(A sum, A factor, A& out) {
        out = factor == 0 ? sum : factor * out + sum;
    }
};

}  // namespace

TEST_CASE("nccl: Muon's steps are one thread's to the bit, on every policy and pace, by the kernels of its list") {
    using Precision = sk::DefaultPrecision<float>;
    constexpr auto matrices = sk::nccl::detail::rule_kernels<Precision, sk::rules::MuonRule>();
    decltype(matrices)::template In<sk::gpu::KernelLaunches>::calls();
    host_functions::Given::all().take();
    paced_ranks::check_training(
        muon_training::expected(), muon_training::policies, [](auto& rank, const auto& policy) {
            return muon_training::train(rank, policy, LaunchedProducts{}, paced_ranks::submit);
        });
    CHECK(host_functions::given_beside(sk::nccl::detail::group_kernels<Precision>() + matrices +
                                       sk::nccl::detail::training_kernels<Precision, sk::rules::AdamWRule>()) == "");
}

TEST_CASE("nccl: Muon refuses a group that is offloaded, by its path") {
    CHECK(paced_ranks::run(Mesh(1, 1, 1), paced_ranks::all_paces[3], {}, [&](auto& rank, const auto&) {
              using List = sk::TensorList<float>;
              using Layer = sk::Sharded<List, sk::FullShard>;
              typename Layer::Options options{};
              options.offload = sk::Offload::states;
              Layer layer(rank, "layer", List{{"wide", {3, 8}}}, options);
              sk::Model model{layer};
              CHECK(has(thrown_message<std::invalid_argument>([&] {
                            const sk::Muon muon{model, LaunchedProducts{}};
                        }),
                        "'layer' has an Offload, and matrices are brought together"));
          }) == "");
}

TEST_CASE("nccl: Muon refuses a device's matrices without a library of products") {
    CHECK(paced_ranks::run(Mesh(1, 1, 1), paced_ranks::all_paces[3], {}, [&](auto& rank, const auto&) {
              using List = sk::TensorList<float>;
              sk::Sharded<List, sk::FullShard> layer(rank, "layer", List{{"wide", {3, 8}}});
              sk::Model model{layer};
              CHECK(has(thrown_message<sk::UsageError>([&] { const sk::Muon muon{model}; }),
                        "on the engine nccl, whose matrices are a device's"));
          }) == "");
}

TEST_CASE("nccl: batches of matrices are made in the order of a schedule, with the bits of one thread") {
    muon_training::InBatches expected;
    sk::threads::run(Mesh(1, 1, 1), [&](auto& rank) {
        expected = muon_training::train_in_batches(
            rank, FirstTerms{}, [](const auto& stream, const auto& work) { stream.submit(work); }, false);
    });
    for (const bool one_by_one : {false, true}) {
        for (const auto paces : paced_ranks::paces_in_turn(paced_ranks::one_lazy)) {
            CAPTURE(one_by_one);
            std::vector<muon_training::InBatches> made(2);
            CHECK(paced_ranks::run(Mesh(2, 1, 1), paces, {}, [&](auto& rank, const auto&) {
                      made[rank.rank()] = muon_training::train_in_batches(rank, Launched<FirstTerms>{},
                                                                          paced_ranks::submit, one_by_one);
                  }) == "");
            std::vector<sk::schedule::Op> planned;
            sk::detail::for_each_batch_act(4, [&](sk::schedule::Act act, std::uint32_t batch) {
                planned.push_back({act, 0, batch});
            });
            for (const auto& of_rank : made) {
                CHECK(of_rank.recorded == planned);
                CHECK(of_rank.values == expected.values);
            }
        }
    }
}

}  // namespace muon_test
