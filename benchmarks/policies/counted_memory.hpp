// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/host/verbs.hpp>
#include <shardkit/memory/host_buffer.hpp>

namespace benchmarks::policies {

/// Bytes that the containers of one model hold on one rank, now and at most. Used by the rank's thread only.
struct ByteAccount {
    std::size_t current = 0;
    std::size_t peak = 0;

    void take(std::size_t bytes) noexcept {
        current += bytes;
        peak = std::max(peak, current);
    }
};

/// The verbs of an engine of the host, whose rank's memory stands on an account.
class CountedVerbs final : public shardkit::host::DecoratedVerbs {
  public:
    CountedVerbs(std::shared_ptr<const Verbs> verbs, std::shared_ptr<ByteAccount> account)
        : DecoratedVerbs(std::move(verbs)), account_(std::move(account)) {}

    std::shared_ptr<void> place(std::size_t bytes) const override {
        return counted(DecoratedVerbs::place(bytes), bytes);
    }
    std::shared_ptr<void> place_local(std::size_t bytes) const override {
        return counted(DecoratedVerbs::place_local(bytes), bytes);
    }

  private:
    std::shared_ptr<void> counted(std::shared_ptr<void> memory, std::size_t bytes) const {
        if (memory == nullptr) {
            const auto own = std::make_shared<shardkit::HostBuffer<std::uint8_t>>(bytes);
            memory = {own, own->data()};
        }
        account_->take(bytes);
        void* const at = memory.get();
        return {at, [kept = std::move(memory), bytes, account = account_](void*) { account->current -= bytes; }};
    }
    std::shared_ptr<const Verbs> decorate(std::shared_ptr<const Verbs> verbs) const override {
        return std::make_shared<const CountedVerbs>(std::move(verbs), account_);
    }

    std::shared_ptr<ByteAccount> account_;
};

}  // namespace benchmarks::policies
