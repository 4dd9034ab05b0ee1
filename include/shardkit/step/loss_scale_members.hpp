// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <shardkit/detail/not_compiled.inc>

#include <cstdint>
#include <string>
#include <utility>

#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/rank/engine_table.hpp>
#include <shardkit/step/loss_scale.hpp>

// Defines the members of LossScale.

namespace shardkit::detail {

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
/// What a loss scale holds.
struct LossScaleMemory {
    LossScaleMemory(Rank& of, const LossScaleOptions& given, SourceLocation where)
        : rank(&of), state(of, LossScaleState(given)) {
        if (StatementBook* const book = book_of(of.world())) {
            stated =
                book->keep({{"loss scale's initial", number_text(given.initial), where},
                            {"loss scale's growth_factor", number_text(given.growth_factor), where},
                            {"loss scale's backoff_factor", number_text(given.backoff_factor), where},
                            {"loss scale's growth_interval", std::to_string(given.growth_interval), where},
                            {"loss scale's minimum", number_text(given.minimum), where},
                            {"loss scale's hysteresis", std::to_string(given.hysteresis), where},
                            {"loss scale's forget",
                             given.forget == ForgetOverflows::by_growth ? "by_growth" : "by_clean_step", where}});
        }
    }

    const Rank* rank;
    EngineTable<LossScaleState> state;
    ModelName model{};
    SourceLocation bound_at{};
    StatementsHandle stated{};
    std::uint64_t uses = 0;
};

}  // namespace shardkit::detail

namespace shardkit SHARDKIT_FACE {

SHARDKIT_CORE_INLINE LossScale::LossScale(Rank& rank, LossScaleOptions options, SourceLocation where) {
    validate(options, where);
    memory_ = detail::Owned<detail::LossScaleMemory>(new detail::LossScaleMemory(rank, options, where));
}
SHARDKIT_CORE_INLINE LossScale::LossScale(LossScale&& other) noexcept = default;
SHARDKIT_CORE_INLINE LossScale& LossScale::operator=(LossScale&& other) noexcept = default;
SHARDKIT_CORE_INLINE LossScale::~LossScale() = default;

SHARDKIT_CORE_INLINE const LossScaleState* LossScale::data() const noexcept {
    return memory_ ? memory_->state.data() : nullptr;
}
inline detail::LossScaleMemory& LossScale::memory(SourceLocation where) const {
    if (!memory_) {
        throw_usage_error(where, "a LossScale was used after it was moved from: use the one that it was moved to");
    }
    return *memory_;
}
SHARDKIT_CORE_INLINE LossScaleState LossScale::state(SourceLocation where) const {
    return memory(where).state.read();
}
SHARDKIT_CORE_INLINE void LossScale::restore(double value, std::uint32_t clean_steps, std::uint32_t overflows,
                                             SourceLocation where) {
    auto& its = memory(where).state;
    its.write(its.read().restored(value, clean_steps, overflows));
}
inline detail::LossScaleUse LossScale::use(SourceLocation where) {
    detail::LossScaleMemory& its = memory(where);
    return {its.state.data(), detail::hash_of(its.stated), ++its.uses};
}
inline void LossScale::bind(const detail::ModelName& model, SourceLocation where) {
    detail::LossScaleMemory& its = memory(where);
    if (model.rank != its.rank) {
        throw_usage_error(where,
                          "reduce: this LossScale was made with another rank object than the groups of the "
                          "model of '",
                          model.path, "'; expected one rank for both");
    }
    if (its.model.identity == 0) {
        its.model = model;
        its.bound_at = where;
    } else if (its.model.identity != model.identity) {
        throw_usage_error(where, "reduce: this LossScale is that of the model of '", its.model.path, "' (",
                          its.bound_at.file, ":", its.bound_at.line, "), given for the model of '", model.path,
                          "'; expected a LossScale for each model, since the step of each adapts it");
    }
}

}  // namespace SHARDKIT_FACE
