// Another transport for each step of a striped message (CommBench, section 4.2); everything else by the main one.
#include <algorithm>
#include <map>
#include <utility>

#include "fabricbench/transports/transport.hpp"

namespace fabricbench {
namespace {

class WorkInSteps final : public Work {
 public:
  explicit WorkInSteps(std::vector<std::unique_ptr<Work>> steps) : steps_(std::move(steps)) {}
  // Each part ends with the device synchronised, so that the next one finds what it passes on.
  void run(std::uint64_t shift) override {
    for (const auto& step : steps_) {
      if (step != nullptr) step->run(shift);
    }
  }

 private:
  std::vector<std::unique_ptr<Work>> steps_;
};

class Stepwise final : public Transport {
 public:
  explicit Stepwise(const Options& options) : options_(options), main_(&named(options.transport)) {
    for (const std::string& name : options.step_transports) steps_.push_back(&named(name));
  }

  bool has_library(Operation operation) const override { return main_->has_library(operation); }
  bool has_transfers(Operation operation) const override { return main_->has_transfers(operation); }
  bool others_read(Operation operation) const override { return main_->others_read(operation); }
  bool reaches(const Transfer& transfer) const override { return main_->reaches(transfer); }
  Implementation preferred(Operation operation) const override { return main_->preferred(operation); }
  std::uint64_t most_bytes() const override {
    std::uint64_t most = main_->most_bytes();
    for (const auto& [name, transport] : transports_) most = std::min(most, transport->most_bytes());
    return most;
  }
  void set_up(const Context& context) override {
    for (const auto& [name, transport] : transports_) transport->set_up(context);
  }
  std::unique_ptr<Work> prepare(const Measurement& measurement, const Group& group) override {
    switch (measurement.operation) {
      case Operation::striping: {
        std::vector<std::unique_ptr<Work>> parts;
        for (std::size_t i = 0; i < steps_.size(); ++i)
          parts.push_back(steps_[i]->prepare(measurement, {group.ranks, {group.steps[i]}}));
        return std::make_unique<WorkInSteps>(std::move(parts));
      }
      case Operation::striping_split:
        return steps_[0]->prepare(measurement, group);
      case Operation::striping_translate:
      case Operation::striping_direct:
        return steps_[1]->prepare(measurement, group);
      case Operation::striping_assemble:
        return steps_[2]->prepare(measurement, group);
      default:
        return main_->prepare(measurement, group);
    }
  }
  std::map<std::string, std::string> library() const override {
    std::map<std::string, std::string> all;
    for (const auto& [name, transport] : transports_) all.merge(transport->library());
    return all;
  }

 private:
  // One of a kind, whatever number of steps it serves.
  Transport& named(const std::string& name) {
    std::unique_ptr<Transport>& transport = transports_[name];
    if (transport == nullptr) transport = make_transport(name, options_, true);
    return *transport;
  }

  const Options& options_;
  std::map<std::string, std::unique_ptr<Transport>> transports_;
  Transport* main_;
  std::vector<Transport*> steps_;
};

}  // namespace

std::unique_ptr<Transport> make_stepwise(const Options& options) { return std::make_unique<Stepwise>(options); }

}  // namespace fabricbench
