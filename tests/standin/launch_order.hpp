// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "clique.hpp"

namespace standin {

/// Compares, for every two devices, the orders in which they launched the communications that both take part in.
class LaunchOrder {
  public:
    struct Entry {
        const Clique* clique;
        Key key;
        Signature signature;
        std::vector<int> devices;  // of all that take part
    };

    /// A device launched these together (an ncclGroup has no order within).
    void launched(int device, const std::vector<Entry>& group);
    /// A rank has left: what its clique has not finished there will never be.
    void forget(const Clique& clique, int device);
    const std::vector<std::string>& violations() const { return violations_; }

  private:
    struct Pending {
        std::uint64_t clique;
        Key key;
        std::uint64_t position;
        std::string name;
        bool reported;
    };
    /// What one of two devices has launched and the other has not.
    struct Pair {
        std::deque<Pending> by_lower, by_higher;
    };

    void compare(int device, int peer, std::vector<Pending> group);
    void report(int device, int peer, const std::string& first, const std::string& second);

    std::map<std::pair<int, int>, Pair> pairs_;
    std::uint64_t position_ = 0;
    std::vector<std::string> violations_;
};

}  // namespace standin
