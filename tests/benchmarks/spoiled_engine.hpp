// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/backend/self/communicator.hpp>

namespace benchmarks::policies {

/// Verbs that alter the eighth float of what is gathered, while told to.
class SpoiledVerbs final : public shardkit::host::DecoratedVerbs {
  public:
    static inline bool spoils = false;

    using DecoratedVerbs::DecoratedVerbs;

  private:
    void around(const shardkit::Call& call, shardkit::host::Memory delivered, const shardkit::Stream& /*stream*/,
                const Inner& inner) const override {
        inner();
        if (!spoils || call.signature.verb != shardkit::Verb::all_gather) { return; }
        std::byte* const at = delivered.part(7, 1).at;
        float value = 0;
        std::memcpy(&value, at, sizeof value);
        value += 0.125F;
        std::memcpy(at, &value, sizeof value);
    }
    std::shared_ptr<const shardkit::host::Verbs> decorate(
        std::shared_ptr<const shardkit::host::Verbs> verbs) const override {
        return std::make_shared<const SpoiledVerbs>(std::move(verbs));
    }
};

/// One rank of such verbs.
inline shardkit::Communicator spoiled(shardkit::self::World& world) {
    return shardkit::Communicator(std::make_shared<const SpoiledVerbs>(world.communicator().verbs()));
}

}  // namespace benchmarks::policies
