// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/access.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/step/loss_scale_state.hpp>

namespace shardkit {

namespace detail {
/// Identifies a model by its first group.
struct ModelName {
    std::uint64_t identity = 0;  ///< 0: none
    std::string path;
    const void* rank = nullptr;  ///< of its rank
};
/// The use of a loss scale in one step.
struct LossScaleUse {
    LossScaleState* state = nullptr;  ///< in the engine's memory; null without a loss scale
    StatementHash stated = 0;         ///< hash of its options
    std::uint64_t number = 0;         ///< counts its uses, from 1
};
}  // namespace detail

/// A factor that protects fp16 gradients from underflow. Multiply the loss by it; `reduce` divides the gradients by
/// it, and the optimizer's step skips the update on overflow and adapts the factor.
///     LossScale loss_scale{rank, {.initial = 1024}};
/// It lives in the engine's memory, so that a step needs no synchronisation: a kernel that computes the loss reads
/// `data()`, the host `value()`. Make one for each rank and model; it must outlive what is reduced with it.
class LossScale {
  public:
    /// @throws std::invalid_argument, see validate
    explicit LossScale(Rank& rank, LossScaleOptions options = {}, SourceLocation where = SourceLocation::current())
        : rank_(&rank), state_(rank, LossScaleState(validated(options, where))) {
        if (detail::StatementBook* const book = detail::book_of(rank.world())) {
            stated_ =
                book->keep({{"loss scale's initial", detail::number_text(options.initial), where},
                            {"loss scale's growth_factor", detail::number_text(options.growth_factor), where},
                            {"loss scale's backoff_factor", detail::number_text(options.backoff_factor), where},
                            {"loss scale's growth_interval", std::to_string(options.growth_interval), where},
                            {"loss scale's minimum", detail::number_text(options.minimum), where},
                            {"loss scale's hysteresis", std::to_string(options.hysteresis), where},
                            {"loss scale's forget",
                             options.forget == ForgetOverflows::by_growth ? "by_growth" : "by_clean_step", where}});
        }
    }

    /// Returns the factor. Waits for the steps that were given to the compute stream.
    double value() const { return state_.read().value(); }
    /// Returns the number of steps without overflow since the scale last changed. Waits likewise.
    std::uint32_t clean_steps() const { return state_.read().clean_steps(); }
    /// Returns whether the last step that used it found an overflow and therefore changed only the scale. Waits
    /// likewise.
    bool skipped() const { return state_.read().last() == FoundInf::yes; }
    /// Returns the number of skipped steps since the scale was made. Waits likewise. Not part of a checkpoint.
    std::uint64_t skipped_steps() const { return state_.read().skipped_steps(); }

    /// Returns the numbers in the engine's memory, where kernels read them in the order of the compute stream.
    const LossScaleState* data() const noexcept { return state_.data(); }

  private:
    friend detail::Access;
    LossScaleState* loss_scale() const noexcept { return state_.data(); }
    LossScaleState now() const { return state_.read(); }
    void restore(double value, std::uint32_t clean_steps, std::uint32_t overflows) {
        state_.write(state_.read().restored(value, clean_steps, overflows));
    }
    /// Counts one more step that uses it.
    detail::LossScaleUse use() noexcept { return {state_.data(), detail::hash_of(stated_), ++uses_}; }
    void bind(const detail::ModelName& model, SourceLocation where) {
        if (model.rank != rank_) {
            throw_usage_error(where,
                              "reduce: this LossScale was made with another rank object than the groups of the "
                              "model of '",
                              model.path, "'; expected one rank for both");
        }
        if (model_.identity == 0) {
            model_ = model;
            bound_at_ = where;
        } else if (model_.identity != model.identity) {
            throw_usage_error(where, "reduce: this LossScale is that of the model of '", model_.path, "' (",
                              bound_at_.file, ":", bound_at_.line, "), given for the model of '", model.path,
                              "'; expected a LossScale for each model, since the step of each adapts it");
        }
    }
    static const LossScaleOptions& validated(const LossScaleOptions& options, SourceLocation where) {
        validate(options, where);
        return options;
    }

    const Rank* rank_;
    detail::EngineTable<LossScaleState> state_;
    detail::ModelName model_;
    SourceLocation bound_at_{};
    detail::StatementsHandle stated_;
    std::uint64_t uses_ = 0;
};

}  // namespace shardkit
