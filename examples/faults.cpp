// SPDX-License-Identifier: Apache-2.0
// A trainer on three ranks, of which one throws, or gets a wrong bit.
// g++ -std=c++20 -Iinclude examples/faults.cpp -pthread -o example && ./example
#include <cstdio>
#include <exception>
#include <memory>
#include <shardkit/backend/host/decorated_verbs.hpp>
#include <shardkit/shardkit.hpp>
#include <shardkit/verbs.hpp>
#include <shardkit/verify.hpp>
#include <stdexcept>
#include <string>
namespace sk = shardkit;

struct Weight : sk::Param<"weight", float, 8> {};

// The user's trainer.
void train(sk::Rank& rank) {
    sk::Sharded<Weight, sk::NoShard> layer{rank, "layer"};
    sk::Model model{layer};
    sk::SGD optimizer{model, {.learning_rate = 0.5}};
    for (int step = 0; step < 2; ++step) {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        for (float& g : gradients[Weight{}]) { g += 1; }
        accumulation.add(std::move(gradients));
        optimizer.step(std::move(accumulation));
        sk::verify_replicas(model);
    }
}

struct Fault {
    bool throws;  // else it flips a bit of what the call has delivered
    int call;     // the number of the call behind which it strikes, of those that deliver something
};

class Faulty final : public sk::host::DecoratedVerbs {
  public:
    Faulty(std::shared_ptr<const sk::host::Verbs> verbs, Fault& fault)
        : DecoratedVerbs(std::move(verbs)), fault_(fault) {}

  private:
    void around(const sk::Call&, sk::host::Memory delivered, const sk::Stream&, const Inner& inner) const override {
        inner();
        if (delivered.bytes() == 0 || fault_.call-- != 0) { return; }
        if (fault_.throws) { throw std::runtime_error("planted"); }
        *delivered.at ^= std::byte{1};
    }
    std::shared_ptr<const sk::host::Verbs> decorate(std::shared_ptr<const sk::host::Verbs> verbs) const override {
        return std::make_shared<const Faulty>(std::move(verbs), fault_);
    }

    Fault& fault_;
};

// Trains on three ranks, of which one goes wrong; returns what the run ends with.
std::string end_of_run(Fault planted) {
    const sk::DeviceMesh<3> mesh;
    try {
        sk::threads::run(mesh, [&](auto& plain) {
            if (plain.rank() != 1) { return train(plain); }
            const sk::Communicator world(std::make_shared<const Faulty>(plain.world().verbs(), planted));
            sk::MeshRank<sk::DeviceMesh<3>> faulty{mesh, world};
            train(faulty);
        });
    } catch (const std::exception& error) {
        const std::string text = error.what();
        return text.substr(0, text.find(", rank"));
    }
    return "no error";
}

int main() {
    std::printf("%s\n", end_of_run({.throws = true, .call = 1}).c_str());
    std::printf("%s\n", end_of_run({.throws = false, .call = 1}).c_str());
}
