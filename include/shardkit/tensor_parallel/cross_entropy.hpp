// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/core/checked.hpp>
#include <shardkit/spi/launches.hpp>
#include <shardkit/tensor_parallel/cross_entropy_kernels.hpp>
#include <shardkit/tensor_parallel/vocabulary_part.hpp>
#include <shardkit/verbs/all_reduce.hpp>

namespace shardkit::tp SHARDKIT_BUILD {

/// The cross-entropy of logits whose columns are split over tp: no rank ever holds the whole row of a token. It keeps
/// its memory, so that a step allocates none.
/// Memory:  (3 + row workers) numbers for each token.
/// Source:  Shoeybi et al., arXiv 1909.08053, section 3
template <class A>
class CrossEntropy {
  public:
    /// Allocates the memory for up to `tokens` tokens at a time.
    CrossEntropy(Rank& rank, const Communicator& tp, const VocabularyPart& part, std::size_t tokens)
        : rank_(rank),
          tp_(tp),
          part_(part),
          workers_(detail::row_workers<host::AnyKernels>(rank.compute_stream())),
          largest_(detail::EngineTable<A>::zeroed(rank, tokens)),
          sums_(detail::EngineTable<A>::zeroed(rank, 2 * tokens)),
          partial_(detail::EngineTable<A>::zeroed(rank, workers_ * tokens)) {}

    /// Computes losses[t] = log(sum over the vocabulary of exp(logit)) - the target's logit, and replaces every logit
    /// by scale * (softmax - onehot), the gradient of scale times the sum of the losses. Padded columns become 0.
    /// Shapes:  logits [tokens, part.size], targets [tokens] below the vocabulary, losses [tokens].
    /// Order:   on the compute stream. Collective over tp: an all-reduce of tokens maxima, one of 2 * tokens sums.
    /// Cost:    every logit is read three times and written once.
    /// @post    the losses are the same on every rank of tp
    /// @throws  std::invalid_argument when the sizes disagree or there are more tokens than memory; CommError when
    ///          the engine fails
    template <class Token>
    void operator()(std::span<A> logits, std::span<const Token> targets, A scale, std::span<A> losses,
                    SourceLocation where = SourceLocation::current()) {
        using Kernels = host::AnyKernels;
        const auto stream = rank_.compute_stream();
        const std::size_t tokens = targets.size();
        require_argument(tokens <= largest_.size() && logits.size() == tokens * part_.size && losses.size() == tokens,
                         where, "tp::CrossEntropy: ", logits.size(), " logits and ", losses.size(), " losses for ",
                         tokens, " tokens, expected ", part_.size, " logits and a loss for each of at most ",
                         largest_.size(), " tokens");
        const detail::Rows<A> rows{logits.data(), tokens, part_.size, part_.used()};
        const detail::Rows<const A> read{logits.data(), tokens, part_.size, part_.used()};
        A* const largest = largest_.data();
        A* const sums = sums_.data();
        A* const partial = partial_.data();
        const std::size_t workers = workers_;
        Kernels::for_each_index(stream, tokens * workers, detail::LargestOfColumns<A>{read, workers, partial});
        Kernels::for_each_index(stream, tokens, detail::LargestOfWorkers<A>{partial, tokens, workers, largest});
        all_reduce_in_place(tp_, ReduceOp::max, largest_.span().first(tokens), stream, where);
        Kernels::for_each_index(stream, tokens * workers, detail::SumOfColumns<A>{read, workers, largest, partial});
        Kernels::for_each_index(
            stream, tokens,
            detail::SumOfWorkers<Token, A>{partial, workers, read, targets.data(), part_, largest, sums});
        all_reduce_in_place(tp_, ReduceOp::sum, sums_.span().first(2 * tokens), stream, where);
        Kernels::for_each_index(stream, tokens, detail::LossOfToken<A>{sums, tokens, losses.data()});
        Kernels::for_each_index(stream, logits.size(),
                                detail::GradientOfLogit<Token, A>{rows, targets.data(), part_, largest, sums, scale});
    }

  private:
    Rank& rank_;
    Communicator tp_;
    VocabularyPart part_;
    std::size_t workers_;
    detail::EngineTable<A> largest_;
    detail::EngineTable<A> sums_;
    detail::EngineTable<A> partial_;
};

}  // namespace shardkit::tp SHARDKIT_BUILD
