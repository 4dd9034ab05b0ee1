// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "launch_loop.hpp"

// As nvcc compiles it, but for the launches.
#include "../../examples/cuda_trainer/network.cu"

namespace network_test {

using namespace cuda_trainer;

TEST_CASE("cuda_trainer: ranks and microbatches share out the sequences of a step") {
    constexpr train_gpt::BatchShape batch{.batch = 2, .sequence = 3};
    constexpr std::size_t step = 5;
    constexpr std::size_t ranks = 2;
    constexpr std::size_t microbatches = 3;
    std::vector<Token> text(50);
    std::iota(text.begin(), text.end(), Token{0});
    const train_gpt::DataOrder order(text, batch.sequence, 7);
    for (const std::size_t rank : {0U, 1U}) {
        std::vector<Token> tokens(microbatches * batch.tokens()), targets = tokens;
        const CopyTokens work{order, text.data(), step, rank, ranks, batch, tokens.data(), targets.data()};
        for (std::size_t i = 0; i < tokens.size(); ++i) { work(i); }
        std::vector<Token> next(targets.size()), own = next;
        for (std::size_t m = 0; m < microbatches; ++m) {
            order.fill(step, (m * ranks + rank) * batch.batch, batch.batch,
                       shardkit::cp::CausalChunks::of(batch.sequence, 1, 0), own.data() + m * batch.tokens(),
                       next.data() + m * batch.tokens());
        }
        CHECK(tokens == own);
        CHECK(targets == next);
    }
}

}  // namespace network_test
