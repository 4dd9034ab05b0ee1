// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <shardkit/compiled/checkpoint_interface.hpp>
#include <shardkit/detail/access.hpp>

// What checkpoint.hpp is in the compiled form; its functions are described in checkpoint/save.hpp and load.hpp.

namespace shardkit::checkpoint SHARDKIT_BUILD {

/// The contents of a checkpoint: a model's parameters, the states of optimizers, loss scales, and bytes of the user:
/// see checkpoint/checkpoint_state.hpp.
class State {
  public:
    explicit State(const Model& model, SourceLocation where = SourceLocation::current())
        : state_(compiled::make_state(model, where)) {}
    State(const Model& model, Optimizer& optimizer, SourceLocation where = SourceLocation::current())
        : State(model, where) {
        add(optimizer, where);
    }
    State(const Model& model, Optimizer& optimizer, LossScale& loss_scale,
          SourceLocation where = SourceLocation::current())
        : State(model, optimizer, where) {
        add(loss_scale, {}, where);
    }

    State(const State& other) : state_(other.state_->copy()) {}
    State(State&&) noexcept = default;
    State& operator=(State other) noexcept {
        std::swap(state_, other.state_);
        return *this;
    }

    State& add(Optimizer& optimizer, SourceLocation where = SourceLocation::current()) {
        state_->add(optimizer, where);
        return *this;
    }
    State& add(LossScale& loss_scale, std::string name = {}, SourceLocation where = SourceLocation::current()) {
        state_->add(loss_scale, std::move(name), where);
        return *this;
    }
    State& blob(std::string name, std::vector<std::uint8_t>& bytes,
                SourceLocation where = SourceLocation::current()) {
        state_->add(std::move(name), bytes, where);
        return *this;
    }
    const compiled::SavedState& core() const noexcept { return *state_; }

  private:
    friend detail::Access;
    std::uint64_t version(SourceLocation where) const { return state_->version(where); }

    compiled::Handle<compiled::SavedState> state_;
};
/// A save whose files are written in the background: see checkpoint/save.hpp.
class PendingSave {
  public:
    explicit PendingSave(compiled::PendingSave* save) noexcept : save_(save) {}
    Folder commit(SourceLocation where = SourceLocation::current()) && {
        const compiled::Handle<compiled::PendingSave> taken = std::move(save_);
        if (taken.get() == nullptr) {
            detail::refuse_use(where, "PendingSave: commit of what was committed, or moved from");
        }
        return taken->commit(where);
    }

  private:
    compiled::Handle<compiled::PendingSave> save_;
};

inline Folder save(Rank& rank, const std::string& folder, std::uint64_t step, const State& state,
                   const SaveOptions& options = {}, SourceLocation where = SourceLocation::current()) {
    return compiled::save(rank, folder, step, state.core(), options, where);
}
[[nodiscard]] inline PendingSave begin_save(Rank& rank, const std::string& folder, std::uint64_t step,
                                            const State& state, const SaveOptions& options = {},
                                            SourceLocation where = SourceLocation::current()) {
    return PendingSave(compiled::begin_save(rank, folder, step, state.core(), options, where));
}
inline std::optional<Folder> latest(Rank& rank, const std::string& folder, FileCalls* files = nullptr,
                                    SourceLocation where = SourceLocation::current()) {
    return compiled::latest(rank, folder, files, where);
}
inline LoadReport load(Rank& rank, const std::string& folder, const State& state, const LoadOptions& options = {},
                       SourceLocation where = SourceLocation::current()) {
    return compiled::load(rank, folder, state.core(), options, where);
}
inline LoadReport load_model(Rank& rank, const std::string& path, const Model& model, const LoadOptions& options = {},
                             SourceLocation where = SourceLocation::current()) {
    return compiled::load_model(rank, path, model, options, where);
}
inline void save_model(Rank& rank, const std::string& path, const Model& model, const SaveOptions& options = {},
                       SourceLocation where = SourceLocation::current()) {
    compiled::save_model(rank, path, model, options, where);
}
inline Folder roll_back(Rank& rank, const std::string& folder, std::uint64_t step, FileCalls* files = nullptr,
                        SourceLocation where = SourceLocation::current()) {
    return compiled::roll_back(rank, folder, step, files, where);
}

}  // namespace SHARDKIT_BUILD
