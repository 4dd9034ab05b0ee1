// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/layout/placed_parameter.hpp>

namespace shardkit::detail {

/// The values of one group that a write has begun and not ended, as one that throws half way leaves them: of two
/// states, and others on each rank. Nothing trains on them or shows them until they were written again.
/// A template, so that a file compiles of it what it uses.
template <class>
class BasicTornValues {
  public:
    /// What parameters and their masters are called among the kinds of values; the others are an optimizer's states.
    static constexpr std::string_view parameters = "parameter";

    bool empty() const noexcept { return torn_.empty(); }
    /// `verb`, called at `where`, writes values of that kind from here on.
    void begin(std::size_t parameter, std::string_view kind, std::string_view verb, SourceLocation where) {
        if (!torn_.emplace(parameter, kind).second) { return; }  // as a part of what has begun to write them
        verb_ = verb;
        where_ = where;
    }
    /// It has written all of them.
    void end(std::size_t parameter, std::string_view kind) noexcept { torn_.erase({parameter, kind}); }
    /// An optimizer with states of its own is there for that parameter.
    void end_states(std::size_t parameter) noexcept {
        std::erase_if(torn_, [parameter](const Values& values) {
            return values.first == parameter && values.second != parameters;
        });
    }
    /// @throws UsageError that names `verb`, which needs the values, and the write that has not ended
    void require_whole(std::string_view path, std::span<const PlacedParameter> of, std::string_view verb,
                       SourceLocation where) const {
        if (empty()) [[likely]] { return; }
        const auto& [parameter, kind] = *torn_.begin();
        throw_usage_error(where, "'", path, "': ", verb, ", but the ", verb_, " at ", where_.file, ":", where_.line,
                          " ended with an error before '", of[parameter].name, "' had its ", kind,
                          torn_.size() > 1 ? " and others theirs" : "",
                          "; expected a load, or an initialize of the whole group and, after one of states, a new "
                          "optimizer, that succeeds before");
    }

  private:
    using Values = std::pair<std::size_t, std::string_view>;

    std::set<Values> torn_;
    std::string_view verb_;
    SourceLocation where_{};
};
using TornValues = BasicTornValues<void>;

}  // namespace shardkit::detail
