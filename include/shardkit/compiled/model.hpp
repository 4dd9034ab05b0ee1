// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>

#include <shardkit/compiled/interface.hpp>
#include <shardkit/step/model.hpp>

// What step/slices.hpp and step/summon_full_params.hpp are in the compiled form.

namespace shardkit SHARDKIT_BUILD {

/// A model's full parameters, current on every rank while this object lives: see step/summon_full_params.hpp.
class FullParams {
  public:
    explicit FullParams(compiled::Object* open) noexcept : open_(open) {}

  private:
    compiled::Handle<compiled::Object> open_;
};
[[nodiscard]] inline FullParams summon_full_params(const Model& groups,
                                                   SourceLocation where = SourceLocation::current()) {
    return FullParams(compiled::summon(groups, where));
}

/// Returns the order in which ranks take the slices of this model: see step/slices.hpp.
inline SliceOrder slice_order(const Model& model, SourceLocation where = SourceLocation::current()) {
    return compiled::slice_order(model, where);
}
/// Returns the slice of the global batch that this rank takes at `microbatch` of every step: see step/slices.hpp.
template <std::integral Number>
std::size_t slice_of(const Model& model, Number microbatch, SourceLocation where = SourceLocation::current()) {
    return compiled::slice_of(model, static_cast<std::ptrdiff_t>(microbatch), where);
}

}  // namespace SHARDKIT_BUILD
